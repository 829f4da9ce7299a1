#![expect(clippy::disallowed_methods, reason = "the inventory's files and secrets are read here")]
//! Reads the inventory's files, diagnosis rules and secrets.

use std::path::{Path, PathBuf};

use crate::cli::args::CommonArgs;
use crate::cli::exit::CliError;
use crate::inventory::diagnosis_rules::{DiagnosisRule, DiagnosisRuleSource};
use crate::inventory::{InventorySource, is_valid_run_id, nearest_word};
use crate::lifecycle::error::WorkflowError;
use crate::text::shell_quote::quote;

/// The next step where an inventory is missing: a file beside it with a similar name, else how to name or write one.
fn missing_file_hint(file: &Path) -> String {
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let beside: Vec<String> = std::fs::read_dir(directory)
        .map(|entries| entries.take(1000).filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect())
        .unwrap_or_default();
    let is_yaml = |name: &&str| name.ends_with(".yaml") || name.ends_with(".yml");
    let wanted = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if is_valid_run_id(wanted) {
        return format!("\n    help: {wanted} is a run: name it with --run, after the inventory");
    }
    // The ending that all have makes no name similar.
    let stem = |name: &'_ str| name.strip_suffix(".yaml").or(name.strip_suffix(".yml")).unwrap_or(name).len();
    let files: Vec<&str> = beside.iter().map(String::as_str).filter(is_yaml).collect();
    let near = nearest_word(&wanted[..stem(wanted)], files.iter().map(|name| &name[..stem(name)])).filter(|_| !wanted.is_empty());
    let similar = |name: &&&str| near == Some(&name[..stem(name)]);
    match files.iter().filter(similar).min_by_key(|name| (name[stem(name)..] != wanted[stem(wanted)..], **name)) {
        Some(near) => {
            let path = directory.join(near);
            format!("\n    help: did you mean `{}`?", path.strip_prefix(".").unwrap_or(&path).display())
        }
        None => format!(
            "\n    help: name an inventory that exists (first argument, -i or $ORCHESTRATE_INVENTORY), or write one: `orchestrate init {}`",
            quote(&file.display().to_string())
        ),
    }
}

/// Reads the inventory files of a command; also returns the directory that relative paths start from.
///
/// # Errors
/// A file that cannot be read.
pub(crate) fn read_inventory_files(args: &CommonArgs) -> Result<(Vec<InventorySource>, PathBuf), CliError> {
    let mut files: Vec<PathBuf> = args.inventory.iter().chain(&args.files).cloned().collect();
    if files.is_empty() {
        files = std::env::var_os("ORCHESTRATE_INVENTORY").map(|v| std::env::split_paths(&v).collect()).unwrap_or_default();
    }
    let is_unnamed = files.is_empty();
    if is_unnamed {
        files.push(PathBuf::from("inventory.yaml"));
    }
    let mut read = Vec::new();
    for file in &files {
        let name = file.display().to_string();
        match std::fs::read_to_string(file) {
            Ok(text) => read.push(InventorySource { name, text }),
            Err(error) => {
                return Err(CliError::Usage(if error.kind() == std::io::ErrorKind::NotFound {
                    match (is_unnamed, missing_file_hint(file)) {
                        (true, hint) => format!("{name}: no such file in this directory, and no other inventory is named{hint}"),
                        (false, hint) => format!("{name}: no such file{hint}"),
                    }
                } else {
                    format!("{name}: cannot be read: {error}")
                }));
            }
        }
    }
    let base = files.first().and_then(|f| f.parent()).map_or_else(|| PathBuf::from("."), Path::to_owned);
    let base = std::path::absolute(if base.as_os_str().is_empty() { Path::new(".") } else { &base }).unwrap_or(base);
    Ok((read, base))
}

/// Reads the user's diagnosis rules.
///
/// # Errors
/// A file that cannot be read, or the problems in it.
pub(crate) fn load_diagnosis_rules(source: Option<DiagnosisRuleSource>, base: &Path) -> Result<Option<Vec<DiagnosisRule>>, CliError> {
    let name = match source {
        None => return Ok(None),
        Some(DiagnosisRuleSource::Inline(rules)) => return Ok(Some(rules)),
        Some(DiagnosisRuleSource::File(name)) => name,
    };
    let read_error =
        |error| CliError::Usage(format!("diagnosis: {name}: cannot be read: {error}\n    help: the path is relative to the inventory"));
    let text = std::fs::read_to_string(base.join(&name)).map_err(read_error)?;
    Ok(Some(crate::inventory::diagnosis_rules::read_rules(&InventorySource { name, text })?))
}

/// The values of these environment variables.
///
/// # Errors
/// Every variable that is not set.
pub(super) fn read_secrets(names: &[String]) -> Result<Vec<(String, String)>, WorkflowError> {
    let mut found = Vec::new();
    let mut missing = Vec::new();
    for name in names {
        match std::env::var(name) {
            Ok(value) => found.push((name.clone(), value)),
            Err(_) => missing.push(name.as_str()),
        }
    }
    if missing.is_empty() {
        return Ok(found);
    }
    Err(WorkflowError::Usage(format!(
        "secrets: {} not set in this environment\n    help: export {}, or remove the names from `secrets`",
        missing.join(", "),
        missing.first().copied().unwrap_or_default()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_similar_stem_is_suggested() {
        let dir = tempfile::tempdir().expect("a folder");
        for name in ["train.yaml", "train.yml", "long.yaml", "wan2.2.yaml", "a.yaml", "notes.txt"] {
            std::fs::write(dir.path().join(name), "").expect("written");
        }
        let hint = |name: &str| missing_file_hint(&dir.path().join(name));
        for (name, file) in [("trian.yml", "train.yml"), ("trian.yaml", "train.yaml"), ("train", "train.yaml"), ("wan2.2", "wan2.2.yaml")] {
            let hint = hint(name);
            assert!(hint.ends_with(&format!("/{file}`?")), "{name}: {hint}");
        }
        assert!(hint("nothing.yaml").contains("orchestrate init"));
    }
}
