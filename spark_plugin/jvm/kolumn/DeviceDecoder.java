package kolumn;

import ai.rapids.cudf.ColumnVector;

/** Decodes splits into memory of the accelerator. */
final class DeviceDecoder {
  private DeviceDecoder() {}

  static ColumnVector decode(DecodeSplit split, int rows, ColumnVector[] args) {
    throw new UnsupportedOperationException("splits are not decoded on a GPU yet");
  }
}
