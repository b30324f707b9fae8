package com.nvidia.spark.rapids;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.spark.TaskContext;

/** Stands for RAPIDS' semaphore: notes what it is asked for. */
public final class GpuSemaphore$ {
  public static final GpuSemaphore$ MODULE$ = new GpuSemaphore$();
  public final List<String> asked = Collections.synchronizedList(new ArrayList<>());

  /** How often a thread waited without a permit. */
  public final AtomicInteger waits = new AtomicInteger();

  private GpuSemaphore$() {}

  public void acquireIfNecessary(TaskContext context) {
    asked.add("acquire");
  }

  public void releaseIfNecessary(TaskContext context) {
    asked.add("release");
  }
}
