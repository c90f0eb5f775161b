"""A checkpointer on plain Redis: LangGraph's contract over the embedded Valkey.

``langgraph-checkpoint-redis`` needs RedisJSON and RediSearch, which a plain server lacks, so the tests bring this one.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import redis
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
)


class ValkeySaver(BaseCheckpointSaver[int]):
    """Each checkpoint is a hash, each thread a sorted list of ids, each task's writes a hash."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._db: Any = redis.Redis.from_url(url)

    def close(self) -> None:
        """Close the connections."""
        self._db.close()

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Keep one checkpoint."""
        place = _place(config)
        kind, data = self.serde.dumps_typed(checkpoint)
        fields = {
            "kind": kind,
            "data": data,
            "metadata": json.dumps(metadata, default=str),
            "parent": get_checkpoint_id(config) or "",
        }
        self._db.hset(f"{place}:{checkpoint['id']}", mapping=fields)
        self._db.zadd(place, {checkpoint["id"]: 0})
        return _config(config, checkpoint["id"])

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Keep what a task wrote beside a checkpoint."""
        for place, (channel, value) in enumerate(writes):
            kind, data = self.serde.dumps_typed(value)
            name = f"{task_id}|{WRITES_IDX_MAP.get(channel, place)}|{channel}|{kind}"
            self._db.hset(f"{_place(config)}:{get_checkpoint_id(config)}:writes", name, data)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The named checkpoint, or the thread's newest."""
        one = get_checkpoint_id(config)
        if one is None:
            newest = self._db.zrevrangebylex(_place(config), "+", "-", 0, 1)
            one = newest[0].decode() if newest else None
        found = self._db.hgetall(f"{_place(config)}:{one}") if one else None
        if not found or one is None:
            return None
        writes = []
        for name, data in self._db.hgetall(f"{_place(config)}:{one}:writes").items():
            task, _, channel, kind = name.decode().split("|")
            writes.append((task, channel, self.serde.loads_typed((kind, data))))
        parent = found[b"parent"].decode()
        return CheckpointTuple(
            config=_config(config, one),
            checkpoint=self.serde.loads_typed((found[b"kind"].decode(), found[b"data"])),
            metadata=json.loads(found[b"metadata"]),
            parent_config=_config(config, parent) if parent else None,
            pending_writes=writes,
        )

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """A thread's checkpoints, newest first."""
        assert config is not None
        for one in self._db.zrevrangebylex(_place(config), "+", "-", 0, limit or -1):
            found = self.get_tuple(_config(config, one.decode()))
            assert found is not None
            yield found

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The same, for asynchronous graphs."""
        return self.get_tuple(config)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """The same, for asynchronous graphs."""
        return self.put(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """The same, for asynchronous graphs."""
        self.put_writes(config, writes, task_id, task_path)

    async def alist(self, config: RunnableConfig | None, **given: Any) -> AsyncIterator[CheckpointTuple]:
        """The same, for asynchronous graphs."""
        for one in self.list(config, **given):
            yield one


def _place(config: RunnableConfig) -> str:
    return f"checkpoints:{config['configurable']['thread_id']}:{config['configurable'].get('checkpoint_ns', '')}"


def _config(config: RunnableConfig, one: str) -> RunnableConfig:
    given = config["configurable"]
    named = {"thread_id": given["thread_id"], "checkpoint_ns": given.get("checkpoint_ns", ""), "checkpoint_id": one}
    return {"configurable": named}
