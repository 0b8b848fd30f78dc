//! Codespecs: created, shown and deleted. Versions never change, and their numbers are never used again.

use crate::error::ComputeError;
use crate::pools::check_name;
use crate::records::{Records, TRIES, contended};
use crate::{Compute, Result};
use serde::{Deserialize, Serialize};
use towline_api::compute::{CodespecApplied, CodespecBody, CodespecKind, CodespecRef, CodespecShown};

/// The newest version by name.
const NEWEST: &str = "towline/codespec/";
/// Each version, by name and number.
const VERSIONS: &str = "towline/codespec-version/";

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Newest {
    shown: CodespecShown,
    /// A deleted codespec keeps the number of its newest version.
    #[serde(default)]
    deleted: bool,
}

/// A codespec in use, in full.
#[derive(Debug, Clone)]
pub(crate) struct Resolved {
    /// `NAME@VERSION`.
    pub(crate) reference: String,
    pub(crate) body: CodespecBody,
}

fn version_key(name: &str, version: u32) -> String {
    format!("{name}/{version:010}")
}

fn split(reference: &str) -> Result<(&str, Option<u32>)> {
    let Some((name, version)) = reference.split_once('@') else { return Ok((reference, None)) };
    match version.parse() {
        Ok(number) if number > 0 => Ok((name, Some(number))),
        _ => Err(ComputeError::invalid(
            "codespec",
            format!("{version:?} is not a version; use NAME or NAME@NUMBER"),
        )),
    }
}

impl Compute {
    fn newest(&self) -> Records<'_, Newest> {
        Records::new(self.broker(), NEWEST)
    }

    fn versions(&self) -> Records<'_, CodespecShown> {
        Records::new(self.broker(), VERSIONS)
    }

    /// Creates a version, unless the newest one is the same.
    pub async fn create_codespec(&self, name: &str, body: CodespecBody) -> Result<CodespecApplied> {
        check_name("codespec", name)?;
        let body = body.checked()?;
        for _ in 0..TRIES {
            let newest = self.newest().get(name).await?;
            if let Some(seen) = newest.as_ref().filter(|seen| !seen.value.deleted)
                && seen.value.shown.codespec == body
            {
                return Ok(CodespecApplied { created: false, codespec: seen.value.shown.clone() });
            }
            let version = newest.as_ref().map_or(1, |seen| seen.value.shown.version.saturating_add(1));
            let created_at = self.broker().now().into();
            let shown = CodespecShown { name: name.to_owned(), version, created_at, codespec: body.clone() };
            // The version first: a newest version that does not exist would be worse than one that is not the newest.
            let key = version_key(name, version);
            let shown = match self.versions().replace(&key, None, Some(&shown)).await? {
                true => shown,
                // Another client is creating this version, or stopped between the two records.
                false => match self.versions().get(&key).await? {
                    Some(seen) => seen.value,
                    None => continue,
                },
            };
            let created = shown.codespec == body;
            let after = Newest { shown: shown.clone(), deleted: false };
            let won = self.newest().replace(name, newest.map(|seen| seen.bytes), Some(&after)).await?;
            if won && created {
                return Ok(CodespecApplied { created: true, codespec: shown });
            }
        }
        Err(contended(&format!("codespec {name}")).into())
    }

    /// Shows `NAME` or `NAME@VERSION`.
    pub async fn codespec(&self, reference: &str) -> Result<CodespecShown> {
        let (name, version) = split(reference)?;
        check_name("codespec", name)?;
        let found = match version {
            None => {
                let seen = self.newest().get(name).await?;
                seen.filter(|seen| !seen.value.deleted).map(|seen| seen.value.shown)
            }
            Some(version) => self.versions().get(&version_key(name, version)).await?.map(|seen| seen.value),
        };
        found.ok_or_else(|| ComputeError::CodespecNotFound { name: reference.to_owned() })
    }

    /// The newest versions, in order of name.
    pub async fn codespecs(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<CodespecShown>, Option<String>)> {
        let (found, next) = self.newest().page(after, limit).await?;
        Ok((found.into_iter().filter(|(_, at)| !at.deleted).map(|(_, at)| at.shown).collect(), next))
    }

    /// Deletes all versions. Runs, services and triggers keep what they took from it; a service or trigger that names it
    /// prevents the delete, because a restart would need it.
    pub async fn delete_codespec(&self, name: &str) -> Result<()> {
        check_name("codespec", name)?;
        if let Some(user) = self.user_of_codespec(name).await? {
            return Err(ComputeError::CodespecInUse { name: name.to_owned(), user });
        }
        for _ in 0..TRIES {
            let Some(seen) = self.newest().get(name).await?.filter(|seen| !seen.value.deleted) else {
                return Err(ComputeError::CodespecNotFound { name: name.to_owned() });
            };
            let last = seen.value.shown.version;
            let after = Newest { deleted: true, ..seen.value };
            if self.newest().replace(name, Some(seen.bytes), Some(&after)).await? {
                for version in 1..=last {
                    self.versions().delete(&version_key(name, version)).await?;
                }
                return Ok(());
            }
        }
        Err(contended(&format!("codespec {name}")).into())
    }

    async fn user_of_codespec(&self, name: &str) -> Result<Option<String>> {
        let uses = |reference: &str| reference.split('@').next() == Some(name);
        for (service, at) in self.service_records().all().await? {
            if uses(&at.codespec) {
                return Ok(Some(format!("service {service:?}")));
            }
        }
        for (trigger, at) in self.trigger_records().all().await? {
            if uses(&at.slot.codespec) {
                return Ok(Some(format!("trigger {trigger:?}")));
            }
        }
        Ok(None)
    }

    /// Finds a codespec of this kind. One that is written out is created first, under `name`.
    pub(crate) async fn resolve(
        &self,
        given: CodespecRef,
        name: &str,
        kind: CodespecKind,
    ) -> Result<Resolved> {
        let shown = match given {
            CodespecRef::Named(reference) if reference.is_empty() => {
                return Err(ComputeError::invalid("codespec", "missing; name a codespec, or give one"));
            }
            CodespecRef::Named(reference) => self.codespec(&reference).await?,
            CodespecRef::Inline(mut body) => {
                body.kind = body.kind.or(Some(kind));
                check_kind(name, &body, kind)?;
                self.create_codespec(name, *body).await?.codespec
            }
        };
        check_kind(&shown.name, &shown.codespec, kind)?;
        Ok(Resolved { reference: shown.reference(), body: shown.codespec })
    }
}

fn check_kind(name: &str, body: &CodespecBody, wanted: CodespecKind) -> Result<()> {
    let kind = body.kind();
    if kind == wanted {
        return Ok(());
    }
    let (kind, wanted) = (kind.name(), wanted.name());
    Err(ComputeError::Mismatch(format!("codespec {name:?} is a {kind}; this needs a {wanted}")))
}
