"""Pictures for llama.cpp: its multimodal library (mtmd), which xllamacpp brings, with a projector in a file of its own (mmproj).

What is timed: scaling the picture and cutting it up, encoder and projector (together the encode time), then the prefill of text and
picture; reading the file and decoding its JPEG or PNG come before. Source: tools/mtmd/mtmd.h and mtmd-helper.h of llama.cpp.
"""

import ctypes
import io
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from ctypes import POINTER, Structure, byref, c_bool, c_char_p, c_int, c_int32, c_size_t, c_uint32, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError, MeasurementError, UnavailableError, one_line
from edgemeter.agent.base.plugins import import_extra
from edgemeter.agent.generators import ChatMessage, Picture

# Where a picture stands in the text.
MARKER = "<__media__>"
_IMAGE = 1


class _Params(Structure):
    _fields_ = (
        ("use_gpu", c_bool), ("device", c_void_p), ("print_timings", c_bool), ("n_threads", c_int), ("image_marker", c_char_p),
        ("media_marker", c_char_p), ("flash_attention", c_int), ("warmup", c_bool), ("image_min_tokens", c_int),
        ("image_max_tokens", c_int), ("eval_callback", c_void_p), ("eval_data", c_void_p), ("batch_max_tokens", c_int32),
        ("progress", c_void_p), ("progress_data", c_void_p),
    )  # fmt: skip


class _Text(Structure):
    _fields_ = (("text", c_char_p), ("length", c_size_t), ("add_special", c_bool), ("parse_special", c_bool))


_SIGNATURES: Sequence[tuple[Any, Sequence[Any], str]] = (
    (_Params, (), "mtmd_context_params_default"),
    (c_void_p, (c_char_p, c_void_p, _Params), "mtmd_init_from_file"),
    (None, (c_void_p,), "mtmd_free mtmd_bitmap_free mtmd_input_chunks_free"),
    (c_bool, (c_void_p,), "mtmd_support_vision"),
    (c_void_p, (c_uint32, c_uint32, c_void_p), "mtmd_bitmap_init"),
    (c_void_p, (), "mtmd_input_chunks_init"),
    (c_int32, (c_void_p, c_void_p, POINTER(_Text), POINTER(c_void_p), c_size_t), "mtmd_tokenize"),
    (c_size_t, (c_void_p,), "mtmd_input_chunks_size mtmd_input_chunk_get_n_tokens"),
    (c_void_p, (c_void_p, c_size_t), "mtmd_input_chunks_get"),
    (c_int, (c_void_p,), "mtmd_input_chunk_get_type"),
    (POINTER(c_int32), (c_void_p, POINTER(c_size_t)), "mtmd_input_chunk_get_tokens_text"),
    (c_int32, (c_void_p, c_void_p), "mtmd_encode_chunk"),
    (c_void_p, (c_void_p,), "mtmd_get_output_embd"),
    (
        c_int32,
        (c_void_p, c_void_p, c_void_p, c_void_p, c_int32, c_int32, c_int32, POINTER(c_int32), c_void_p, c_void_p),
        "mtmd_helper_decode_image_chunk",
    ),
    (None, (c_void_p, c_void_p), "mtmd_helper_log_set"),
    (c_int32, (c_void_p,), "llama_model_n_embd_inp"),
)


class Projector:
    """The vision encoder and projector beside a loaded language model."""

    def __init__(self, library: Any, path: Path, text_model: int | None, *, threads: int, offload: bool, log: Any) -> None:
        """Load the file.

        Raises:
            UnavailableError: this build's library is another than the one that is known.
            ConfigError: the file is no projector for this model.
        """
        for returns, takes, names in _SIGNATURES:
            for name in names.split():
                function = getattr(library, name, None)
                if function is None:
                    raise UnavailableError(f"this build of llama.cpp takes no pictures ({name} is missing): pip install 'edgemeter[llama]'")
                function.restype, function.argtypes = returns, tuple(takes)
        self._library, self._file = library, path
        library.mtmd_helper_log_set(ctypes.cast(log, c_void_p), None)
        params = library.mtmd_context_params_default()
        defaults = params.media_marker, params.flash_attention, params.image_min_tokens, params.batch_max_tokens
        if defaults != (MARKER.encode(), -1, -1, 1024):
            raise UnavailableError("this build of llama.cpp has other mtmd_context_params: pip install 'edgemeter[llama]'")
        params.use_gpu, params.print_timings, params.n_threads = offload, False, threads
        if not path.is_file():
            raise ConfigError(f"there is no projector {str(path)!r}: give mmproj = FILE, which belongs to the model")
        self._token_bytes = 4 * library.llama_model_n_embd_inp(text_model)
        self._context = library.mtmd_init_from_file(os.fsencode(path), text_model, params)
        if not self._context or not library.mtmd_support_vision(self._context):
            raise ConfigError(f"{str(path)!r} is no vision projector for this model: give the mmproj file that belongs to it")

    def count(self, text: str, picture: Picture, *, add_special: bool) -> int:
        """Return the tokens of a text with a picture in it."""
        with closing(self.bitmap(picture)) as bitmap, closing(self._tokenised(text, bitmap, add_special=add_special)) as chunks:
            return sum(self._library.mtmd_input_chunk_get_n_tokens(chunk) for chunk in chunks)

    def bitmap(self, picture: Picture) -> "_Bitmap":
        """Return the pixels of a picture; close it after use."""
        return _Bitmap(self._library, picture)

    def _tokenised(self, text: str, bitmap: "_Bitmap", *, add_special: bool) -> "_Chunks":
        return _Chunks(self._library, self._context, text, bitmap, add_special=add_special)

    def _is_image(self, chunk: int) -> bool:
        return bool(self._library.mtmd_input_chunk_get_type(chunk) == _IMAGE)

    def encode(self, text: str, bitmap: "_Bitmap", *, add_special: bool) -> "_Chunks":
        """Scale, cut and encode the picture; the text is laid out around it. Close it after use."""
        chunks = self._tokenised(text, bitmap, add_special=add_special)
        for chunk in filter(self._is_image, chunks):
            if self._library.mtmd_encode_chunk(self._context, chunk):
                chunks.close()
                raise MeasurementError(f"llama.cpp failed to encode a picture with {self._file.name}: use a smaller one")
            size = self._token_bytes * self._library.mtmd_input_chunk_get_n_tokens(chunk)
            # The library keeps the embeddings of one chunk: each tile of a picture overwrites the one before.
            chunks.embeddings.append(ctypes.string_at(self._library.mtmd_get_output_embd(self._context), size))
        return chunks

    def prefill(
        self, chunks: "_Chunks", text_model_context: int | None, batch: int, decode_text: Callable[[Sequence[int], int], None]
    ) -> tuple[int, int, int]:
        """Process text and picture in their order; return their tokens, those of the picture among them, and the position behind them.

        `decode_text` processes tokens from a position on. A picture may take fewer positions than it has tokens (M-RoPE).
        """
        total = image_tokens = 0
        position, embeddings = c_int32(0), iter(chunks.embeddings)
        for chunk in chunks:
            count = self._library.mtmd_input_chunk_get_n_tokens(chunk)
            if self._is_image(chunk):
                status = self._library.mtmd_helper_decode_image_chunk(
                    self._context, text_model_context, chunk, next(embeddings), position.value, 0, batch, byref(position), None, None
                )
                if status:
                    raise MeasurementError(f"llama.cpp failed on the {count} tokens of a picture: raise the context")
                image_tokens += count
            else:
                length = c_size_t()
                tokens = self._library.mtmd_input_chunk_get_tokens_text(chunk, byref(length))
                decode_text(tokens[: length.value], position.value)
                position.value += length.value
            total += count
        return total, image_tokens, position.value

    def close(self) -> None:
        """Free encoder and projector."""
        if self._context:
            self._library.mtmd_free(self._context)
            self._context = None


class _Bitmap:
    def __init__(self, library: Any, picture: Picture) -> None:
        self._library, self._pixels = library, pixels_of(picture)
        height, width, _ = self._pixels.shape
        self.address = library.mtmd_bitmap_init(width, height, self._pixels.ctypes.data)

    def close(self) -> None:
        if self.address:
            self._library.mtmd_bitmap_free(self.address)
            self.address = None


class _Chunks:
    def __init__(self, library: Any, context: int, text: str, bitmap: _Bitmap, *, add_special: bool) -> None:
        self._library, self.embeddings = library, list[bytes]()
        self._address = library.mtmd_input_chunks_init()
        content = text.encode()
        status = library.mtmd_tokenize(
            context, self._address, byref(_Text(content, len(content), add_special, True)), (c_void_p * 1)(bitmap.address), 1
        )
        if status:
            self.close()
            raise MeasurementError(f"llama.cpp cannot prepare a picture (status {status}): give one picture, and a text without {MARKER}")

    def __iter__(self) -> Iterator[int]:
        for index in range(self._library.mtmd_input_chunks_size(self._address)):
            yield self._library.mtmd_input_chunks_get(self._address, index)

    def close(self) -> None:
        if self._address:
            self._library.mtmd_input_chunks_free(self._address)
            self._address = None


def pixels_of(picture: Picture) -> NDArray[np.uint8]:
    """Return a picture as uint8 [H, W, 3], turned as its EXIF says; raises ConfigError if it is none."""
    image = import_extra("PIL.Image", "vision", "reading pictures needs Pillow")
    operations = import_extra("PIL.ImageOps", "vision", "reading pictures needs Pillow")
    try:
        with image.open(io.BytesIO(picture.content)) as opened:
            return np.ascontiguousarray(operations.exif_transpose(opened).convert("RGB"), np.uint8)
    except (OSError, ValueError, SyntaxError) as error:
        raise ConfigError(f"cannot read the picture {picture.name!r}: {one_line(error)}") from error


def with_markers(messages: Sequence[ChatMessage]) -> tuple[list[ChatMessage], Picture]:
    """Return messages whose texts hold a marker for their picture, and that picture; raises ConfigError unless there is one."""
    pictures = [message.picture for message in messages if message.picture is not None]
    if len(pictures) != 1:
        raise ConfigError(f"a prompt with {len(pictures)} pictures is not measured in this process: give one")
    texts = [f"{MARKER}{message.text}" if message.picture else message.text for message in messages]
    return [ChatMessage(message.role, text) for message, text in zip(messages, texts, strict=True)], pictures[0]
