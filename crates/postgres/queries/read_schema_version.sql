SELECT coalesce(max(version), 0), coalesce(max(compatible_with), 0) FROM towline_schema
