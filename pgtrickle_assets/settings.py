"""All settings of the product."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Settings from the environment, prefix `PGTRICKLE_`."""

    model_config = SettingsConfigDict(env_prefix="PGTRICKLE_", extra="ignore")

    home: Path = Field(default=Path(".pgtrickle"))
    spark_master: str = Field(default="local[*]")
    spark_remote: SecretStr | None = Field(default=None)
    spark_driver_memory: str = Field(default="2g")
    spark_shuffle_partitions: int = Field(default=0)
    spark_ui: bool = Field(default=False)
    spark_bind_address: str = Field(default="127.0.0.1")
    spark_scratch_dir: Path | None = Field(default=None)
    spark_conf: dict[str, str] = Field(default_factory=dict)
