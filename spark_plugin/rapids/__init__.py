"""The RAPIDS Accelerator for a session: its settings, its jar, and what it makes of a plan.

Nothing here touches CUDA. `kolumn.spark_plugin.read_segments` is the route on which the accelerator takes records over.
"""

from kolumn.spark_plugin.rapids.plan import Explanation
from kolumn.spark_plugin.rapids.settings import configure, explain, fetch_jar, find_jar

__all__ = ["Explanation", "configure", "explain", "fetch_jar", "find_jar"]
