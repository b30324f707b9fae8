package ai.rapids.cudf;

public final class ColumnVector {}
