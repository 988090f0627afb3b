"""Files, formats, voice activity, devices: everything between a sound and 16 kHz mono PCM."""
