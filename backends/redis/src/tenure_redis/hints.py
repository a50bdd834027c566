"""Listens to what the scripts publish, over a connection of its own that comes back by itself."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError
from tenure.errors import BackendError, BackendUnavailable

from tenure_redis.node import closed

PAUSE_S = (0.1, 5.0)
"""How long is waited before the next connection, growing from the first to the second, half of it at random."""
CHANNELS_AT_ONCE = 500

Dial = Callable[[], Awaitable[AbstractConnection]]


async def listen(
    dial: Dial,
    channels: Sequence[str],
    heard: Callable[[str], None],
    *,
    silence_s: float,
    translate: Callable[[Exception], BackendError],
) -> None:
    """Tell of each channel that something was published on, until cancelled.

    A connection that is lost, or that has said nothing for ``silence_s`` and does not answer for as long when it is
    asked, is replaced; only what no new connection mends (a missing permission) is raised.
    """
    pause_s, longest_s = PAUSE_S
    while True:
        try:
            async for channel in _messages(dial, channels, silence_s):
                pause_s = PAUSE_S[0]
                if channel:
                    heard(channel)
        except (RedisError, OSError) as error:  # of which TimeoutError is one
            translated = translate(error)
            if not isinstance(translated, BackendUnavailable):
                raise translated from error
        await asyncio.sleep(pause_s * random.uniform(0.5, 1))
        pause_s = min(2 * pause_s, longest_s)


async def _messages(dial: Dial, channels: Sequence[str], silence_s: float) -> AsyncIterator[str]:
    """The channel of each message, until the connection is lost; an empty one when it is listened to."""
    async with asyncio.timeout(silence_s):
        connection = await dial()
    try:
        for first in range(0, len(channels), CHANNELS_AT_ONCE):
            await connection.send_command("SUBSCRIBE", *channels[first : first + CHANNELS_AT_ONCE])
        asked = False
        while True:
            message = await connection.read_response(disable_decoding=True, timeout=silence_s)
            if message is None and asked:
                return
            if message is None:
                await connection.send_command("PING")
            elif message[0] == b"message":
                yield message[1].decode()
            elif message[0] == b"subscribe":
                yield ""
            asked = message is None
    finally:
        await closed(connection)
