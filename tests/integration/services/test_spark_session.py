import datetime
import os
import shutil
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow as pa
import pytest
from pydantic import SecretStr

from pgtrickle_assets.errors import ServiceError
from pgtrickle_assets.services.spark import spark_session
from pgtrickle_assets.settings import Settings

pytestmark = pytest.mark.spark


def test_division_by_zero_is_an_error_and_time_is_utc(spark):
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException):
        spark.sql("SELECT 1 / 0").collect()
    assert spark.sql("SELECT current_timezone()").collect()[0][0] == "UTC"


def test_values_come_back_from_a_python_worker_as_they_went_in(spark):
    table = pa.table(
        {
            "n": pa.array([1, None], pa.int64()),
            "d": pa.array([datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
            "t": pa.array([datetime.time(0), datetime.time(23, 59, 59, 999999)], pa.time64("us")),
            "z": pa.array([0, 253402300799999999], pa.timestamp("us", tz="UTC")),
            "s": pa.array(["é\u0000", ""], pa.string()),
            "b": pa.array([b"\x00\xff", None], pa.binary()),
            "l": pa.array([[1, None], []], pa.list_(pa.int32())),
        }
    )
    frame = spark.createDataFrame(table)
    back = frame.mapInArrow(lambda batches: batches, frame.schema).toArrow()
    assert back.to_pylist() == table.to_pylist()
    assert back.schema.field("s").type == pa.string()


def test_python_workers_run_this_interpreter(spark):
    frame = spark.createDataFrame(pa.table({"path": [""]}))
    found = frame.mapInArrow(lambda _: iter([pa.record_batch({"path": [sys.executable]})]), frame.schema).toArrow()
    assert found.to_pylist() == [{"path": sys.executable}]


SMALL = """
    import sys
    from pathlib import Path
    from pgtrickle_assets.services.spark import spark_session
    from pgtrickle_assets.settings import Settings

    settings = Settings(spark_master="local[1]", spark_driver_memory="512m", spark_scratch_dir=Path(sys.argv[1]))
    session = spark_session(settings)
    print(session.sql("SELECT java_method('java.lang.System', 'getProperty', 'java.specification.version')").first()[0])
    try:
        session.sql("SELECT 1 / 0").collect()
    except Exception as error:
        print(type(error).__name__)
    session.stop()
"""


@pytest.mark.nightly
def test_spark_starts_without_java_on_the_machine_and_keeps_quiet(tmp_path):
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "sh", "dirname", "env", "ps", "uname", "head", "cat"):
        if found := shutil.which(name):
            (tools / name).symlink_to(found)
    environment = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_HOME")}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SMALL), str(tmp_path / "scratch dir")],
        env={**environment, "PATH": str(tools)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.stdout.split() == ["25", "ArithmeticException"], done.stderr
    assert done.stderr == ""


@pytest.mark.nightly
def test_a_remote_that_is_not_there_is_an_error_at_once(monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = Settings(spark_remote=SecretStr(f"sc://localhost:{port}/;token=hunter2"))
    with pytest.raises(ServiceError, match="PGTRICKLE_SPARK_REMOTE") as caught:
        spark_session(settings)
    assert "hunter2" not in str(caught.value)


CONNECT = """
    import sys
    from pathlib import Path
    import pyarrow as pa
    from pgtrickle_assets.services.spark import spark_session
    from pgtrickle_assets.services.spark_connect import SparkConnectServer
    from pgtrickle_assets.settings import Settings

    settings = Settings(spark_master="local[1]", spark_driver_memory="512m", spark_scratch_dir=Path(sys.argv[1]))
    with SparkConnectServer(settings) as server:
        assert "***" in repr(server.remote)
        server.warm_up()
        session = spark_session(settings.model_copy(update={"spark_remote": server.remote}))
        frame = session.createDataFrame(pa.table({"n": [1, 2, None]}))
        print(type(session).__module__, frame.mapInArrow(lambda batches: batches, frame.schema).toArrow().num_rows)
        print(session.conf.get("spark.sql.session.timeZone"), session.conf.get("spark.sql.ansi.enabled"))
        session.stop()
        from pyspark.sql import SparkSession
        try:
            address = server.remote.get_secret_value().split(";")[0]
            SparkSession.builder.remote(address).create().sql("SELECT 1").collect()
            print("open to everybody")
        except Exception as error:
            print("refused", type(error).__name__)
    print("running" if server.running() else "stopped")
"""


@pytest.mark.nightly
def test_a_connect_server_serves_who_has_its_token_and_ends_with_its_starter(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CONNECT), str(tmp_path / "scratch")],
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.stdout.splitlines() == [
        "pyspark.sql.connect.session 3",
        "UTC true",
        "refused SparkConnectGrpcException",
        "stopped",
    ], done.stderr
    assert not processes_with(str(tmp_path / "scratch"))


def processes_with(text: str) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text.encode() in entry.read_bytes():
                found.append(entry.parent.name)
        except OSError:
            continue
    return found
