//! Keeps passwords out of the messages about wrong settings.

/// The value of a setting for a message. `None`: it may hold a secret.
pub(super) fn shown(name: &str, value: &str) -> Option<String> {
    let is_secret = match value.split_once("://") {
        // A user, a password, or an option like `?password=...`. A password may contain any of these characters, and it may be
        // these characters that make the value wrong. So nothing of it is shown.
        Some((_, rest)) => rest.contains([':', '@', '?', '=']),
        None => value.contains('@') || value.contains("password"),
    };
    // The secret itself in place of the path of its file.
    let is_no_path = name.ends_with("_file") && !value.starts_with(['/', '.', '~']);
    (!is_secret && !is_no_path).then(|| value.chars().take(100).collect())
}

#[cfg(test)]
mod tests {
    use super::super::{SETTINGS, Settings};

    const SECRET: &str = "hunter2";

    fn load(toml: &str, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Result<Settings, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("towline.toml");
        std::fs::write(&path, toml).unwrap();
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let flags: Vec<(&str, String)> =
            flags.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Settings::load(Some(&path), environment, &flags).map_err(|error| format!("{error} {error:?}"))
    }

    #[test]
    fn no_error_of_any_setting_contains_a_secret() {
        let values = [
            "postgres://user:hunter2@host:port/db",
            "postgres://user:hunter2",
            "postgres://user:x/hunter2@host/db",
            "postgres://user:x?hunter2=1@host/db",
            "postgres://user@host/db?password=hunter2&nonsense=1",
            "postgres://user@host/db?sslrootcert=%hunter2",
            "https://user:hunter2@host:port",
            "https://user:hunter2@host",
            "s3://key:hunter2@bucket?x",
            "host=here password=hunter2",
            "hunter2",
        ];
        let mut refused = 0;
        for setting in SETTINGS {
            let is_url = ["store", "s3_endpoint", "otlp_endpoint", "buffers"].contains(&setting.name);
            let is_file = setting.name.ends_with("_file");
            let variable = format!("TOWLINE_{}", setting.name.to_uppercase());
            for value in values.iter().filter(|value| is_url || is_file || value.len() > SECRET.len()) {
                let toml = format!("{} = \"{value}\"", setting.name);
                for loaded in [
                    load("", &[], &[(setting.name, value)]),
                    load("", &[(&variable, value)], &[]),
                    load(&toml, &[], &[]),
                    load(&toml[..toml.len() - 1], &[], &[]),
                ] {
                    match loaded {
                        Err(message) if *value == SECRET && is_url => drop(message),
                        Err(message) => {
                            refused += 1;
                            assert!(!message.contains(SECRET), "{}: {message}", setting.name);
                            assert!(
                                message.contains(setting.name) || message.contains("line 1"),
                                "{message}"
                            );
                        }
                        Ok(settings) if is_url && value.contains("://") => {
                            assert!(!format!("{settings:?}").contains(SECRET), "{}: {value}", setting.name);
                        }
                        Ok(_) => {}
                    }
                }
            }
        }
        assert!(refused > 100, "{refused}");
        for variable in ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] {
            let message = load("", &[(variable, "https://user:hunter2@host")], &[]).unwrap_err();
            assert!(message.contains(variable) && !message.contains(SECRET), "{message}");
        }
    }

    #[test]
    fn secrets_in_files_are_not_in_errors() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        std::fs::write(&path, "hunter2 is not: a\nheader hunter2").unwrap();
        let message = load("", &[], &[("otlp_headers_file", path.to_str().unwrap())]).unwrap_err();
        assert!(message.contains("line 1") && !message.contains(SECRET), "{message}");
    }
}
