"""What goes over the wire, read and written as values: routes, bodies, streams, headers, engine answers; no I/O."""
