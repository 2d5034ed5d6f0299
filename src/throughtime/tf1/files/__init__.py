"""Files of programs: `gfile` and TFRecord."""
