"""Reads the member ``model`` of forms: of multipart forms while they arrive, and of urlencoded ones.

The endpoint that carries unknown requests asks it for a request's model. Fields of a multipart form may come after a
file of any size, so the scan keeps nothing but the field that it looks for. Sources: RFC 7578; RFC 2046, section 5.1.
"""

from __future__ import annotations

from email.message import Message
from urllib.parse import quote_plus, unquote_plus, unquote_to_bytes

from tidemark.core.conversation.messages import LONGEST_MODEL_NAME
from tidemark.core.errors import InvalidRequest
from tidemark.dialects.members import checked_model

FIELD = "model"
MAX_PART_HEAD_BYTES = 16_384
"""The longest head of one part; a file's name is the longest thing in it."""
MAX_PARTS = 1000
"""As many as Starlette and Django read of one form; no form that names a model has nearly as many."""
MAX_PAIRS = 1000
"""Pairs of an urlencoded form, as many as parts of a multipart form."""
MAX_VALUE_CHARACTERS = 16 * LONGEST_MODEL_NAME
"""More than the longest name of a model takes with percent signs."""
MAX_PARAMETERS = 100
"""Parameters of one header. The library that reads them copies the rest of the header for each."""
_DISPOSITION = b"content-disposition"


def boundary_of(content_type: bytes) -> bytes:
    """Return the boundary of a multipart form.

    :raises InvalidRequest: the header names none
    """
    boundary = _parameter("content-type", content_type, "boundary")
    if not boundary or len(boundary) > 200:
        raise InvalidRequest("Content-Type: multipart/form-data needs a boundary.", code="invalid_form")
    return boundary.encode("latin-1", "replace")


class ModelField:
    """Finds the field ``model`` of a multipart form whose bytes are fed to it.

    Mutable: the bytes that are not read yet, and what was found. It stops at the first field of the name.

    :param boundary: as the header of the request states it
    """

    def __init__(self, boundary: bytes) -> None:
        self.model: str | None = None
        self.start = self.end = 0
        """Where the field's value begins and ends, in bytes from the beginning of the form."""
        self.has_field = False
        """Whether a part came that is no file."""
        self.is_complete = False
        """Whether the field was found, or the form ended without one."""
        self._delimiter = b"\r\n--" + boundary
        self._unread = bytearray(b"\r\n")  # so that the first delimiter is like all others
        self._offset = -2
        self._count = 0
        self._read = self._skip_part

    def feed(self, data: bytes) -> None:
        """Read a piece of the form.

        :raises InvalidRequest: the form cannot be read, or the field is no name of a model
        """
        self._unread += data
        while not self.is_complete and self._read():
            pass

    def check_rest(self) -> None:
        """Read on after the field.

        Tidemark would choose the upstream by the first field, and that may serve the last.

        :raises InvalidRequest: a second field follows, or the form cannot be read
        """
        self.is_complete = False
        self._read = self._skip_part
        self.feed(b"")

    def _skip_part(self) -> bool:
        """Drop the rest of a part; return whether its end has come."""
        at = self._unread.find(self._delimiter)
        if at < 0:
            self._drop(max(0, len(self._unread) - len(self._delimiter)))
            return False
        self._drop(at + len(self._delimiter))
        self._read = self._read_delimiter
        return True

    def _read_delimiter(self) -> bool:
        """Read what follows a delimiter: two dashes at the end of the form, else a line's end."""
        if len(self._unread) < 2:
            return False
        if self._unread.startswith(b"--"):
            self.is_complete = True
            return False
        at = self._unread.find(b"\r\n")
        if at < 0:
            return self._wait("a part's boundary")
        self._drop(at)  # a part without a head begins with the empty line that ends it
        self._read = self._read_head
        return True

    def _read_head(self) -> bool:
        """Read the head of a part, which says whether it is the field."""
        at = self._unread.find(b"\r\n\r\n")
        if at < 0:
            return self._wait("a part's head")
        self._count += 1
        if self._count > MAX_PARTS:
            raise InvalidRequest(f"The form has more than {MAX_PARTS} parts.", code="invalid_form")
        head = bytes(self._unread[:at])
        is_field = _is_field(head)
        self.has_field = self.has_field or b"filename" not in head.lower()
        self._drop(at + 4)
        self._read = self._read_value if is_field else self._skip_part
        if is_field and self.model is not None:
            raise InvalidRequest(f"'{FIELD}' is sent twice. Send it once.", param=FIELD, code="invalid_form")
        if is_field:
            self.start = self._offset
        return True

    def _read_value(self) -> bool:
        """Read the field's value, once it is whole."""
        at = self._unread.find(self._delimiter)
        if at < 0:
            if len(self._unread) > 4 * LONGEST_MODEL_NAME + len(self._delimiter):
                raise InvalidRequest(f"'{FIELD}' is longer than any model's name.", param=FIELD, code="invalid_type")
            return False
        try:
            self.model = checked_model(bytes(self._unread[:at]).decode())
        except UnicodeDecodeError as error:
            raise InvalidRequest(f"'{FIELD}' is not valid UTF-8.", param=FIELD, code="invalid_type") from error
        self.end = self.start + at
        self.is_complete = True
        return False

    def _wait(self, place: str) -> bool:
        if len(self._unread) > MAX_PART_HEAD_BYTES:
            raise InvalidRequest(
                f"The form cannot be read: {place} is longer than {MAX_PART_HEAD_BYTES} bytes.", code="invalid_form"
            )
        return False

    def _drop(self, size: int) -> None:
        del self._unread[:size]
        self._offset += size


def field_of_form(boundary: bytes, body: bytes) -> ModelField:
    """Return the field of a multipart form that is there as a whole.

    :raises InvalidRequest: the form cannot be read, the field is no name of a model, or it is there twice
    """
    field = ModelField(boundary)
    field.feed(body)
    if field.model is not None:
        field.check_rest()
    return field


def model_of_pairs(pairs: str) -> str | None:
    """Return the model that a query or an urlencoded form names; None if it names none, or an empty one.

    :param pairs: its bytes, as characters of Latin-1
    :raises InvalidRequest: it is no name of a model, or two pairs name two models
    """
    model = None
    for pair in pairs.split("&"):
        name, mark, value = pair.partition("=")
        if mark and value and _names_field(name):
            other = checked_model(_decoded(value[:MAX_VALUE_CHARACTERS]))
            model = model or other
            _check_same(model, other)
    return model


def check_pairs(pairs: str) -> None:
    """Refuse an urlencoded form with more than ``MAX_PAIRS``. A query is short, as a head is.

    :raises InvalidRequest: there are more
    """
    if pairs.count("&") >= MAX_PAIRS:
        raise InvalidRequest(f"The form has more than {MAX_PAIRS} pairs.", code="invalid_form")


def _check_same(model: str | None, other: str | None) -> None:
    """Refuse a second model: Tidemark would choose the upstream by the first, and that may serve the last."""
    if other is not None and other != model:
        message = f"'{FIELD}' is sent twice, as {model!r} and as {other!r}. Send it once."
        raise InvalidRequest(message, param=FIELD, code="invalid_form")


def pairs_with_model(pairs: str, model: str) -> str:
    """Return a query or an urlencoded form with another model; every other pair keeps its bytes."""
    new_pairs = []
    for pair in pairs.split("&"):
        name, mark, _ = pair.partition("=")
        new_pairs.append(f"{name}={quote_plus(model, safe='/:')}" if mark and _names_field(name) else pair)
    return "&".join(new_pairs)


def _names_field(name: str) -> bool:
    """Whether a pair's name is the field, with percent signs or without; a longer one cannot be."""
    return len(name) <= 3 * len(FIELD) and unquote_plus(name) == FIELD


def _decoded(value: str) -> str:
    return unquote_to_bytes(value.replace("+", " ").encode("latin-1")).decode("utf-8", "replace")


def _is_field(head: bytes) -> bool:
    """Whether the head of a part says that the part is the field, and no file of that name."""
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == _DISPOSITION:  # the first one counts
            return (
                FIELD.encode() in value
                and _parameter("content-disposition", value.strip(), "filename") is None
                and _parameter("content-disposition", value.strip(), "name") == FIELD
            )
    return False


def _parameter(header: str, value: bytes, name: str) -> str | None:
    """Return a parameter of a header's value (RFC 9110, section 5.6.6).

    :raises InvalidRequest: there are more than ``MAX_PARAMETERS``
    """
    if value.count(b";") > MAX_PARAMETERS:
        raise InvalidRequest(
            f"The form cannot be read: a {header} has more than {MAX_PARAMETERS} parameters.", code="invalid_form"
        )
    message = Message()
    message[header] = value.decode("latin-1").replace("\r", "").replace("\n", "")
    parameter = message.get_param(name, header=header)
    return parameter if isinstance(parameter, str) else None
