"""Signs people in by OpenID Connect: the authorization code flow with PKCE, against one provider.

``openid_pages.py`` serves its two addresses. Nothing is stored: state, nonce and verifier are signatures over a random
id, which a cookie carries to the provider and back. The libraries come with the extra ``oidc``, and are imported when
somebody signs in. Sources: OpenID Connect Core 1.0, sections 3.1.2 and 3.1.3.7; Discovery 1.0; RFC 7636 (PKCE).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tidemark.core.errors import Forbidden, NotAuthenticated, UpstreamError
from tidemark.core.frozen import frozen
from tidemark.core.hosts import is_loopback
from tidemark.server.guarding import Visitor

if TYPE_CHECKING:
    from authlib.integrations.httpx_client import AsyncOAuth2Client

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures by a public key only: neither ``none``, nor one that whoever reads a public key can make."""
TIMEOUT_SECONDS = 10.0
"""The longest that the provider may take for each answer."""
METADATA_SECONDS = 3600.0
"""How long the provider's metadata and keys are cached."""
KEYS_SECONDS = 60.0
"""Keys are asked for again if a token names another one, but not more often."""
LEEWAY_SECONDS = 60
"""By how much the clocks of provider and server may differ."""
SCOPE = "openid profile email"
MAX_NAME = 200
AWAY = (
    "The provider of OpenID does not answer, or not as it should, so nobody can sign in by it now. Sign in with the "
    "token, or try again in a moment."
)
NOT_VALID = "What the provider sent is not valid for this sign-in. Begin it once more."
HINT = "Sign-in by OpenID needs the server's extra oidc: pip install 'tidemark-proxy[oidc]'. Sign in with the token."


class ProviderAway(UpstreamError):
    """The provider does not answer, or not as OpenID demands."""


@frozen
class OpenIdRules:
    """Which provider is asked, and what a role needs."""

    issuer: str
    client_id: str
    secret: str | None
    """None for a public client, which PKCE alone protects."""
    role_claim: str
    operators: frozenset[str]
    """Values of the claim, one of which makes a person an operator."""
    auditors: frozenset[str]

    def __repr__(self) -> str:
        return f"OpenIdRules({self.issuer})"

    def visitor(self, claims: Mapping[str, Any]) -> Visitor | None:
        """Return whom verified claims name; None if they give no role.

        A claim that is neither a text nor a list of texts gives none. A person with both roles is an operator.
        """
        claim, subject, email = claims.get(self.role_claim), claims.get("sub"), claims.get("email")
        values = {claim} if isinstance(claim, str) else set()
        if isinstance(claim, list) and all(isinstance(value, str) for value in claim):
            values = set(claim)
        if not isinstance(subject, str) or not subject:
            return None
        is_verified = isinstance(email, str) and claims.get("email_verified") is True
        name = (f"{subject} ({email})" if is_verified else subject)[:MAX_NAME]
        if values & self.operators:
            return Visitor("operator", name)
        return Visitor("auditor", name) if values & self.auditors else None


@frozen
class SignInAttempt:
    """What belongs to one way to the provider and back."""

    state: str
    nonce: str
    verifier: str
    redirect_uri: str


class OpenIdProvider:
    """Asks the provider. Its state is the provider's metadata and keys, as they were last read.

    :param clock: seconds, of any beginning
    """

    def __init__(self, rules: OpenIdRules, clock: Callable[[], float] = time.monotonic) -> None:
        self.rules = rules
        self._clock = clock
        self._metadata: Mapping[str, Any] = {}
        self._metadata_until = 0.0
        self._keys: Mapping[str, Any] = {}
        self._keys_until = 0.0
        self._keys_anew_at = 0.0

    async def address(self, attempt: SignInAttempt) -> str:
        """Return the address of the provider at which a person signs in.

        :raises ProviderAway: it does not answer
        :raises Forbidden: the libraries are missing
        """
        async with self._client(attempt.redirect_uri) as client:
            metadata = await self._read_metadata(client)
            url, _ = client.create_authorization_url(
                metadata["authorization_endpoint"],
                state=attempt.state,
                nonce=attempt.nonce,
                code_verifier=attempt.verifier,
            )
        return str(url)

    async def visitor(self, attempt: SignInAttempt, code: str) -> Visitor | None:
        """Return whom a code stands for; None if the person has no role here.

        :raises NotAuthenticated: the code, or the token that it leads to, is not valid
        :raises ProviderAway: the provider does not answer
        """
        async with self._client(attempt.redirect_uri) as client:
            metadata = await self._read_metadata(client)
            token = await self._exchanged(client, metadata, attempt, code)
            claims = await self._claims(client, metadata, token, attempt.nonce)
        return self.rules.visitor(claims)

    def _client(self, redirect_uri: str) -> AsyncOAuth2Client:
        try:
            from authlib.integrations.httpx_client import AsyncOAuth2Client
        except ModuleNotFoundError as error:
            raise Forbidden(HINT) from error
        secret = self.rules.secret
        return AsyncOAuth2Client(
            self.rules.client_id,
            secret,
            scope=SCOPE,
            redirect_uri=redirect_uri,
            code_challenge_method="S256",
            token_endpoint_auth_method="none" if secret is None else "client_secret_basic",
            timeout=TIMEOUT_SECONDS,
            follow_redirects=False,
        )

    async def _exchanged(
        self, client: AsyncOAuth2Client, metadata: Mapping[str, Any], attempt: SignInAttempt, code: str
    ) -> str:
        """Return the ID token for a code."""
        from authlib.integrations.base_client import OAuthError

        try:
            token = await client.fetch_token(
                metadata["token_endpoint"], grant_type="authorization_code", code=code, code_verifier=attempt.verifier
            )
        except OAuthError as error:
            raise NotAuthenticated(NOT_VALID) from error
        except self._failures() as error:
            raise ProviderAway(AWAY) from error
        text = token.get("id_token")
        if not isinstance(text, str):
            raise NotAuthenticated(NOT_VALID)
        return text

    async def _claims(
        self, client: AsyncOAuth2Client, metadata: Mapping[str, Any], token: str, nonce: str
    ) -> Mapping[str, Any]:
        """Return the claims of an ID token that the provider signed for us, now, and for this attempt."""
        from joserfc import jwt
        from joserfc.errors import InvalidKeyIdError, JoseError
        from joserfc.jwk import KeySet

        wanted = jwt.JWTClaimsRegistry(
            now=lambda: int(time.time()),
            leeway=LEEWAY_SECONDS,
            iss={"essential": True, "value": self.rules.issuer},
            aud={"essential": True, "value": self.rules.client_id},
            exp={"essential": True},
            iat={"essential": True},
            sub={"essential": True},
            nonce={"essential": True, "value": nonce},
        )
        for is_last in (False, True):
            keys = await self._read_keys(client, metadata, anew=is_last)
            try:
                claims = jwt.decode(token, KeySet.import_key_set(keys), algorithms=list(ALGORITHMS)).claims
                wanted.validate(claims)
            except InvalidKeyIdError as error:
                if is_last:
                    raise NotAuthenticated(NOT_VALID) from error
            except (JoseError, ValueError, TypeError, KeyError) as error:
                raise NotAuthenticated(NOT_VALID) from error
            else:
                return self._of_one_audience(claims)
        raise NotAuthenticated(NOT_VALID)

    def _of_one_audience(self, claims: Mapping[str, Any]) -> Mapping[str, Any]:
        """Refuse a token that was made for another party too, and not given to us (Core 1.0, section 3.1.3.7)."""
        audience, party = claims["aud"], claims.get("azp", self.rules.client_id)
        is_shared = isinstance(audience, list) and len(audience) > 1 and "azp" not in claims
        if is_shared or party != self.rules.client_id:
            raise NotAuthenticated(NOT_VALID)
        return claims

    async def _read_metadata(self, client: AsyncOAuth2Client) -> Mapping[str, Any]:
        if self._clock() >= self._metadata_until:
            issuer = self.rules.issuer
            metadata = await self._read_json(client, f"{issuer.rstrip('/')}/.well-known/openid-configuration")
            addresses = [metadata.get(name) for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")]
            if metadata.get("issuer") != issuer or not all(map(is_protected, addresses)):
                raise ProviderAway(AWAY)
            self._metadata, self._metadata_until = metadata, self._clock() + METADATA_SECONDS
        return self._metadata

    async def _read_keys(self, client: AsyncOAuth2Client, metadata: Mapping[str, Any], *, anew: bool) -> Any:
        now = self._clock()
        if now >= self._keys_until or (anew and now >= self._keys_anew_at):
            keys = await self._read_json(client, metadata["jwks_uri"])
            if not isinstance(keys.get("keys"), list):
                raise ProviderAway(AWAY)
            self._keys, self._keys_until = keys, now + METADATA_SECONDS
            self._keys_anew_at = now + KEYS_SECONDS if anew else now
        return self._keys

    async def _read_json(self, client: AsyncOAuth2Client, url: str) -> Mapping[str, Any]:
        try:
            answer = await client.request("GET", url, withhold_token=True)
            content = answer.json() if answer.status_code == 200 else None
        except self._failures() as error:
            raise ProviderAway(AWAY) from error
        if not isinstance(content, dict):
            raise ProviderAway(AWAY)
        return content

    def _failures(self) -> tuple[type[Exception], ...]:
        import httpx2

        return (httpx2.HTTPError, httpx2.InvalidURL, ValueError, KeyError, TypeError)


def is_protected(address: object) -> bool:
    """Return whether nobody on the way can read or change what is sent to an address: TLS, or this machine."""
    from urllib.parse import urlsplit

    if not isinstance(address, str):
        return False
    try:
        parts = urlsplit(address)
        return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
    except ValueError:
        return False
