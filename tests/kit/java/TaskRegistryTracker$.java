package com.nvidia.spark.rapids;

import scala.Function0;

/** Stands for what RAPIDS knows of threads: notes in {@link GpuSemaphore$} what they wait for without the GPU. */
public final class TaskRegistryTracker$ {
  public static final TaskRegistryTracker$ MODULE$ = new TaskRegistryTracker$();

  private TaskRegistryTracker$() {}

  public <T> T withRmmPoolWait(Function0<T> body) {
    GpuSemaphore$.MODULE$.waits.incrementAndGet();
    return body.apply();
  }
}
