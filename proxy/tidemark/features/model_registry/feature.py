"""Plugs in the registry of models: ``/tidemark/models``, and ``tidemark models`` without a server."""

from __future__ import annotations

import time
from collections.abc import Sequence

from starlette.routing import BaseRoute

from tidemark.config import read_override
from tidemark.features.feature import Feature
from tidemark.features.model_registry.endpoints import RegistryEndpoints
from tidemark.features.model_registry.registry import ModelRegistry
from tidemark.worker.worker import Worker


class ModelRegistryFeature(Feature):
    """Shows and changes windows and thresholds of models."""

    def __init__(self, worker: Worker) -> None:
        self._auth, self._operator = worker.auth, worker.operator
        self.registry = ModelRegistry(
            store=worker.models,
            calibrations=worker.calibrations,
            live=worker.live,
            catalog=worker.catalog,
            upstream=worker.upstream,
            data=worker.model_data,
            read_field=read_override,
            clock=time.time,
        )

    def routes(self) -> Sequence[BaseRoute]:
        return RegistryEndpoints(self.registry, self._auth, self._operator).routes()
