"""Spark sessions: one process with its own Spark, or a client of a running Spark Connect server."""

from __future__ import annotations

import importlib.util
import logging
import os
import socket
import sys
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pgtrickle_assets.errors import ServiceError
from pgtrickle_assets.services.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pgtrickle_assets.settings import Settings

APPLICATION_NAME = "pgtrickle"
_CONNECT_PORT = 15002
_REACH_SECONDS = 10.0

# What decides results: never left to a default that another Spark release may change.
SEMANTICS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timeType.enabled": "true",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.parquet.fieldId.read.enabled": "true",
}

# What decides speed on our many small jobs. All of it may be set per session, so a Connect client sends it too.
TUNING = {
    # Files to read come from the catalog; listing them again with a Spark job costs more than the read.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    "spark.sql.adaptive.enabled": "true",
    # After a shuffle, one task for what one task does well; by default it would be one per core and a file from each.
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "16MB",
    # One thread per core; small deltas run as one task anyway.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.debug.maxToStringFields": "200",
}

# The first compiler alone gets a fifth of the code cache by default, less than Spark's generated code fills.
_COMPILER_OPTIONS = {"full": (), "quick": ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m")}


def spark_session(settings: Settings, *, name: str = APPLICATION_NAME) -> SparkSession:
    """The process's Spark session, started when there is none.

    With `settings.spark_remote` it is a client of that Spark Connect server; otherwise it runs on
    `settings.spark_master` with the driver in a JVM of this process. The caller that started it stops it.

    Args:
        settings: Master or remote, memory, extra configuration (`spark_conf` wins over everything set here).
        name: Application name that Spark's UI and logs show.

    Raises:
        ServiceError: No suitable Java, or the remote server does not answer.
    """
    from pyspark.sql import SparkSession

    # It writes the whole Java trace of an error that is raised anyway.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    builder = SparkSession.builder.appName(name)
    configuration = session_configuration(settings)
    if settings.spark_remote is not None:
        remote = settings.spark_remote.get_secret_value()
        _require_reachable(remote)
        # Otherwise what a run sent stays in the server's memory for an hour.
        os.environ.setdefault("SPARK_CONNECT_RELEASE_SESSION_ON_EXIT", "true")
        builder = builder.remote(remote)
    else:
        # PySpark starts its JVM from the process's environment; there is no other way to tell it.
        os.environ.update(prepare_environment(settings))
        builder = builder.master(settings.spark_master)
        configuration = {**static_configuration(settings), **configuration}
    for key, value in {**configuration, **settings.spark_conf}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    if settings.spark_remote is not None:
        _bound_retries(session)
    return session


def _require_reachable(remote: str) -> None:
    """Fail now: Spark Connect's client tries for ten minutes to reach a server that is not there."""
    address = urlsplit(remote)
    host, port = address.hostname or "localhost", address.port or _CONNECT_PORT
    try:
        socket.create_connection((host, port), timeout=_REACH_SECONDS).close()
    except OSError as error:
        raise ServiceError(
            f"The Spark Connect server at {host}:{port} cannot be reached: {error.strerror or error}.",
            hint="Start it, or unset PGTRICKLE_SPARK_REMOTE to run Spark in this process.",
        ) from error


def _bound_retries(session: SparkSession) -> None:
    """A server that went away fails a run in half a minute, not ten; the same when the session is released at exit."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    policy = DefaultPolicy(max_retries=7, max_backoff=8_000, max_server_retry_delay=8_000)
    session.client.set_retry_policies([policy])


def session_configuration(settings: Settings) -> dict[str, str]:
    """Configuration that a session may change while Spark runs."""
    return {
        **SEMANTICS,
        **TUNING,
        "spark.sql.shuffle.partitions": str(settings.spark_shuffle_partitions or max(2, os.cpu_count() or 2)),
    }


def static_configuration(settings: Settings) -> dict[str, str]:
    """Configuration that counts only when the driver's JVM starts."""
    scratch = scratch_folder(settings)
    log_file = files("pgtrickle_assets.services").joinpath("log4j2.properties")
    # Quoted for Spark's own parser of this line: both paths may hold blanks.
    driver_options = f'"-Dlog4j2.configurationFile={log_file}" "-Dderby.system.home={scratch / "derby"}"'
    return {
        "spark.driver.memory": settings.spark_driver_memory,
        "spark.driver.maxResultSize": "0",
        # Short runs on few cores: no collector that works beside the tasks.
        "spark.driver.extraJavaOptions": " ".join(
            (
                driver_options,
                "-XX:+UseParallelGC",
                "-XX:MaxMetaspaceSize=512m",
                *_COMPILER_OPTIONS[settings.spark_compiler],
            )
        ),
        "spark.driver.bindAddress": settings.spark_bind_address,
        "spark.driver.host": settings.spark_bind_address,
        "spark.ui.enabled": "true" if settings.spark_ui else "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.retainedJobs": "50",
        "spark.ui.retainedStages": "50",
        "spark.sql.ui.retainedExecutions": "20",
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        # A hundred classes by default: fewer than one refresh of a project generates, so each run compiled all anew.
        "spark.sql.codegen.cache.maxEntries": "2000",
        # Inferring filters takes time exponential in the number of renamed columns (SPARK-19846); ours rename a lot.
        "spark.sql.constraintPropagation.enabled": "false",
        # Up to 64 MB by default, which each hash table and sort sets to zero first, however few its rows are.
        "spark.buffer.pageSize": "2m",
        # A call into the JVM per DataFrame operation, to remember which Python line made it.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
    }


def scratch_folder(settings: Settings) -> Path:
    """Folder for what Spark throws away: shuffle files, an unused warehouse, the Java launcher."""
    folder = settings.spark_scratch_dir or settings.home / "spark"
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def prepare_environment(settings: Settings) -> dict[str, str]:
    """Environment in which PySpark starts a JVM with the right Java, Python and Spark.

    Returns:
        A copy of this process's environment with what Spark's launcher reads changed.

    Raises:
        ServiceError: No suitable Java.
    """
    found = importlib.util.find_spec("pyspark")
    # A Spark of another version that is installed on the machine does not understand this PySpark.
    own = {} if found is None or found.origin is None else {"SPARK_HOME": str(Path(found.origin).parent)}
    return {
        **os.environ,
        **own,
        "JAVA_HOME": str(java_home(scratch_folder(settings))),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        # The launcher asks for our host name otherwise, and that may not resolve.
        "SPARK_LOCAL_IP": os.environ.get("SPARK_LOCAL_IP", settings.spark_bind_address),
    }
