//! The environment of a command.

use super::Launch;
use super::cookies::{INSTANCE_COOKIE, LAUNCH_COOKIE};
use std::collections::BTreeMap;

pub(super) const PATH_DEFAULT: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The environment variable with the path of a parameter's pipe.
pub(super) fn pipe_variable(name: &str) -> String {
    let upper = name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' });
    upper.chain("_PIPE".chars()).collect()
}

/// Where a command finds what its launch directory holds.
#[derive(Debug)]
pub(super) struct Places<'a> {
    /// The launch directory as the command sees it.
    pub(super) directory: &'a str,
    /// The working directory, also for `HOME` and `TMPDIR`; a container has its own.
    pub(super) work: Option<&'a str>,
}

impl Places<'_> {
    pub(super) fn environment(&self, launch: &Launch, instance: &str) -> BTreeMap<String, String> {
        let mut environment = launch.environment.clone();
        if let Some(work) = self.work {
            for (name, value) in [("PATH", PATH_DEFAULT), ("HOME", work), ("TMPDIR", work)] {
                environment.entry(name.to_owned()).or_insert_with(|| value.to_owned());
            }
        }
        for name in launch.inputs.iter().chain(&launch.outputs) {
            environment.insert(pipe_variable(name), format!("{}/{name}.pipe", self.directory));
        }
        for file in &launch.files {
            environment.insert(file.variable.clone(), format!("{}/{}", self.directory, file.name));
        }
        environment.insert(INSTANCE_COOKIE.to_owned(), instance.to_owned());
        environment.insert(LAUNCH_COOKIE.to_owned(), launch.id.clone());
        environment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_names_its_variable() {
        assert_eq!(pipe_variable("input"), "INPUT_PIPE");
        assert_eq!(pipe_variable("left-half.2"), "LEFT_HALF_2_PIPE");
    }
}
