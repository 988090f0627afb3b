"""The catalog, downloads, verification and conversion of models. The only room that touches a network."""
