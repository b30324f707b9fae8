"""A YARN of one machine: Hadoop's own resource manager and node manager, in one JVM, and programs that are submitted to it."""

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway

import kolumn
from kolumn.core.cache import places
from kolumn.spark_plugin.session.java import Artifact, find_java

_JARS = Path(pyspark.__file__).parent / "jars"
# MiniYARNCluster asks for JUnit's assertions and for Bouncy Castle when it starts.
_MORE = [
    Artifact("org.junit.jupiter", "junit-jupiter-api", "5.13.4"),
    Artifact("org.junit.platform", "junit-platform-commons", "1.13.4"),
    Artifact("org.opentest4j", "opentest4j", "1.3.0"),
    *(Artifact("org.bouncycastle", f"bc{part}-jdk18on", "1.82") for part in ("prov", "pkix", "util")),
]
_SETTINGS = {
    "yarn.nodemanager.pmem-check-enabled": "false",
    "yarn.nodemanager.vmem-check-enabled": "false",
    "yarn.nodemanager.resource.memory-mb": "6144",
    "yarn.nodemanager.resource.cpu-vcores": "4",
    "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
    "yarn.scheduler.minimum-allocation-mb": "64",
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    "yarn.scheduler.capacity.maximum-am-resource-percent": "1",
}


def cluster_jars() -> list[Path]:
    """Hadoop's small cluster, of the release that is in Spark. Raises `MissingError` if it cannot be fetched."""
    release = next(_JARS.glob("hadoop-client-api-*.jar")).stem.rpartition("-")[2]
    return [jar.fetch() for jar in (Artifact("org.apache.hadoop", "hadoop-client-minicluster", release), *_MORE)]


@contextmanager
def yarn(folder: Path, jars: list[Path]) -> Iterator[Path]:
    """A cluster with its files in ``folder``; gives the folder of its settings, ``HADOOP_CONF_DIR``."""
    path = os.pathsep.join([*map(str, jars), str(_JARS / "*")])
    folder.mkdir()
    java = [str(find_java() / "bin" / "java"), "-cp", path, "py4j.GatewayServer", "--die-on-broken-pipe", "0"]
    with (folder / "log").open("wb") as log, subprocess.Popen(
        java, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
    ) as process:  # fmt: skip
        assert process.stdout is not None
        # Without its memory management: finalizers that talk to a JVM which is gone would run at any later moment.
        port = int(process.stdout.readline())
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, enable_memory_management=False))
        try:
            hadoop = gateway.jvm.org.apache.hadoop.yarn
            conf = hadoop.conf.YarnConfiguration()
            for name, value in _SETTINGS.items():
                conf.set(name, value)
            cluster = hadoop.server.MiniYARNCluster("kolumn", 1, 1, 1)
            cluster.init(conf)
            cluster.start()
            try:
                assert cluster.waitForNodeManagersToConnect(60_000), (folder / "log").read_text()[-3000:]
                file = gateway.jvm.java.io.FileOutputStream(str(folder / "yarn-site.xml"))
                cluster.getConfig().writeXml(file)
                file.close()
                yield folder
            finally:
                cluster.stop()
        finally:
            gateway.close()
            process.kill()


def packed_environment(folder: Path) -> Path:
    """An archive of a virtual environment that has Kolumn; what Kolumn and Spark need is read where it is on this machine."""
    venv.create(folder / "job", symlinks=True)
    (packages,) = folder.glob("job/lib/python*/site-packages")
    shutil.copytree(Path(kolumn.__file__).parent, packages / "kolumn", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(Path(kolumn.__file__).parents[1] / "pyspark_kolumn.py", packages)
    (packages / "others.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    return Path(shutil.make_archive(str(folder / "job"), "gztar", folder / "job"))


def submit(conf: Path, archive: Path, mode: str, program: Path, *arguments: object, jar: Path | None = None) -> None:
    """``spark-submit`` as `docs/howto/clusters.md` says it. Containers have no more of this environment than YARN gives them."""
    settings = {
        # Not uploaded for each application.
        "spark.yarn.jars": f"local:{_JARS}/*", "spark.yarn.stagingDir": f"file://{conf}/staging", "spark.executor.instances": "2",
        "spark.executor.memory": "512m", "spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false",
        # Machine code that was compiled once; a wheel brings it along.
        **dict.fromkeys((f"spark.{where}.KOLUMN_CACHE_DIR" for where in ("yarn.appMasterEnv", "executorEnv")), str(places()[0])),
    }  # fmt: skip
    command = [str(_JARS.parent / "bin" / "spark-submit"), "--master", "yarn", "--deploy-mode", mode, "--archives", f"{archive}#job"]
    command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    command += ["--jars", str(jar)] if jar else []
    unset = ("PYTHONPATH", "SPARK_HOME", "PYSPARK_DRIVER_PYTHON", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")
    env = {name: value for name, value in os.environ.items() if name not in unset}
    env |= {"HADOOP_CONF_DIR": str(conf), "PYSPARK_PYTHON": "./job/bin/python", "JAVA_HOME": str(find_java())}
    if mode == "client":
        env |= {"PYSPARK_DRIVER_PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([*command, str(program), *map(str, arguments)], env=env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:] + _logs(conf)


def _logs(conf: Path) -> str:
    """What containers wrote."""
    files = sorted(conf.rglob("container_*/std*"))
    return "".join(f"\n{file.parent.name}/{file.name}\n{file.read_text(errors='replace')[-3000:]}" for file in files)
