"""Home Assistant's Wyoming protocol, spoken for the assistant. Imported only where it is enabled."""
