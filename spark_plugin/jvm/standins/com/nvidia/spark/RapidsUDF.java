package com.nvidia.spark;

import ai.rapids.cudf.ColumnVector;

/** A stand-in; see {@link ai.rapids.cudf.StandIn}. */
public interface RapidsUDF {
  default ColumnVector evaluateColumnar(ColumnVector... args) {
    throw new UnsupportedOperationException("evaluateColumnar(int, ColumnVector...) is to be overridden");
  }

  default ColumnVector evaluateColumnar(int numRows, ColumnVector... args) {
    return evaluateColumnar(args);
  }
}
