package com.nvidia.spark;

import ai.rapids.cudf.ColumnVector;

public interface RapidsUDF {
  default ColumnVector evaluateColumnar(int numRows, ColumnVector... args) {
    throw new UnsupportedOperationException();
  }
}
