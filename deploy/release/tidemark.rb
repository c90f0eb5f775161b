# The Homebrew formula of a tap. `make dist` writes it with version and digest; Homebrew has not run it yet.
class Tidemark < Formula
  desc "Streaming proxy that keeps long LLM conversations within their context window"
  homepage "https://github.com/tidemark-proxy/tidemark"
  url "https://github.com/tidemark-proxy/tidemark/releases/download/v@VERSION@/tidemark_proxy-@VERSION@.tar.gz"
  sha256 "@SHA256@"
  license "Apache-2.0"

  depends_on "python@3.13"

  def install
    (pkgshare/"source").install Dir["*"]
    %w[tidemark tidemark-proxy].each do |name|
      (bin/name).write <<~SHELL
        #!/bin/sh
        exec "#{libexec}/bin/#{name}" "$@"
      SHELL
      chmod 0755, bin/name
    end
  end

  # After the installation, since Homebrew would change the libraries in the wheels. Each is locked by its digest.
  def post_install
    system Formula["python@3.13"].opt_bin/"python3.13", "-m", "venv", "--clear", libexec
    pip = [libexec/"bin/python", "-m", "pip", "install", "--no-deps"]
    system(*pip, "--require-hashes", "--only-binary", ":all:", "--requirement", pkgshare/"source/requirements/runtime.txt")
    system(*pip, "--no-build-isolation", pkgshare/"source")
  end

  service do
    run [opt_bin/"tidemark", "serve"]
    keep_alive true
    log_path var/"log/tidemark.log"
    error_log_path var/"log/tidemark.log"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/tidemark --version")
  end
end
