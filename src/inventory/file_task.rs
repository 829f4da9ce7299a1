//! The blocks `sync` and `copy` of a task: files of the laptop or of a host, for hosts.

use super::Inventory;
use super::errors::{InventoryErrors, is_absolute_or_home};
use super::eval::Evaluator;
use super::host_exposure::contains_path;
use super::problem::{Verdict, require};
use super::schema::TASK_SCHEMA;
use super::task_settings::{FileSource, FileTask, PrepareTask};
use super::yaml_tree::{YamlKind, YamlNode, shorten};
use crate::text::glob::has_wildcards;

/// Keys that are allowed beside `sync` and `copy`, or refused elsewhere (`run`).
const FILE_TASK_KEYS: [&str; 8] = ["name", "run", "sync", "copy", "hosts", "in", "once", "tags"];
const SYNC_EXAMPLE: &str = "for example sync: { from: ./src, to: ~/src }";
const COPY_EXAMPLE: &str = "for example copy: { from: \"master:~/dist/x-*.whl\", to: /tmp/ }";
const MAX_NAME_BYTES: usize = 255;

/// Reads the block of a task that sends files.
pub(super) struct FileTaskReader<'a> {
    pub(super) inventory: &'a Inventory,
    pub(super) evaluator: &'a Evaluator<'a>,
    /// The task.
    pub(super) task: &'a YamlNode,
    /// Whether each host takes part.
    pub(super) selected: &'a [bool],
    pub(super) in_container: bool,
}

impl FileTaskReader<'_> {
    /// `None` where something is wrong.
    pub(super) fn parse(&self, errors: &mut InventoryErrors) -> Option<FileTask> {
        let (kind, example) = if self.task.get("sync").is_some() { ("sync", SYNC_EXAMPLE) } else { ("copy", COPY_EXAMPLE) };
        let block = self.task.get(kind)?;
        if !matches!(block.kind, YamlKind::Map(_)) {
            errors.report(&block.location, "expected a mapping", example);
            return None;
        }
        for key in TASK_SCHEMA.keys().filter(|key| !FILE_TASK_KEYS.contains(key)) {
            if let Some(node) = self.task.get(key) {
                errors.report(&node.location, format!("`{key}` does not belong to a `{kind}` task"), "remove it, or write a `run` task");
            }
        }
        for key in ["from", "to"].into_iter().filter(|key| block.get(key).is_none()) {
            errors.report(&block.location.child(key), format!("`{key}` is missing"), example);
        }
        let (from, to) = (self.parse_from(block, errors), self.parse_to(block, errors));
        let (from, to, in_container) = (from?, to?, self.in_container);
        if kind == "sync" {
            let source = self.parse_sync(block, &to, errors)?;
            return Some(FileTask { from, source, to, rename: None, mode: None, in_container });
        }
        let source = errors.accept(&block.get("from")?.location, self.find_source(&from));
        let mode = self.read(block, "mode", None).and_then(|node| errors.validated_text(&node, validate_mode));
        let mode = mode.and_then(|mode| u32::from_str_radix(&mode, 8).ok());
        let (to, rename) = errors.accept(&block.get("to")?.location, split_targets(to, has_wildcards(&from)))?;
        Some(FileTask { from, source: source?, to, rename, mode, in_container })
    }

    fn read(&self, block: &YamlNode, key: &str, host: Option<usize>) -> Option<YamlNode> {
        block.get(key).map(|node| self.evaluator.evaluate(node, host))
    }

    fn parse_from(&self, block: &YamlNode, errors: &mut InventoryErrors) -> Option<String> {
        let node = self.read(block, "from", None)?;
        if node.is_unknown() {
            errors.report(&node.location, "it uses a value that is known only when the run starts", "use values of `vars`");
            return None;
        }
        if !matches!(node.kind, YamlKind::Scalar { .. }) {
            let hint = "write a path of this laptop, `master:PATH` or `HOST:PATH`";
            errors.report(&node.location, format!("expected one path, found {}", node.describe()), hint);
            return None;
        }
        errors.validated_text(&node, |text| {
            let fine = !text.is_empty() && !text.contains(['\0', '\n']);
            require(fine, "this is no path", "name a path of this laptop, relative to the inventory's folder")
        })
    }

    /// What each host that takes part gets as its destination.
    fn parse_to(&self, block: &YamlNode, errors: &mut InventoryErrors) -> Option<Vec<Option<String>>> {
        block.get("to")?;
        let mut of_host = |host: usize| {
            self.read(block, "to", Some(host)).and_then(|node| errors.validated_text(&node, validate_host_path)).unwrap_or_default()
        };
        Some(self.selected.iter().enumerate().map(|(host, takes_part)| takes_part.then(|| of_host(host))).collect())
    }

    fn parse_sync(&self, block: &YamlNode, to: &[Option<String>], errors: &mut InventoryErrors) -> Option<FileSource> {
        let delete = self.read(block, "delete", None).and_then(|node| errors.read_bool(&node)).unwrap_or(false);
        if delete && to.iter().flatten().any(|path| matches!(path.trim_end_matches('/'), "" | "~")) {
            errors.report(&block.get("to")?.location, "`delete` in a home or in /", "sync to a directory that holds nothing else");
        }
        let exclude = self.read(block, "exclude", None).map(|node| errors.read_text_list(&node)).unwrap_or_default();
        Some(FileSource::Directory { exclude, delete })
    }

    /// Whether a path names files of the laptop or, after `HOST:`, of a host.
    fn find_source(&self, from: &str) -> Result<FileSource, (String, String)> {
        let path_of = |name: &str| from.strip_prefix(name).and_then(|rest| rest.strip_prefix(':'));
        let found = path_of("master")
            .map(|path| (0, path))
            .or_else(|| self.inventory.hosts.iter().enumerate().find_map(|(host, member)| Some((host, path_of(&member.name)?))));
        let Some((host, path)) = found else {
            validate_file_pattern(from)?;
            return match from.split_once(':') {
                Some((name, _)) if !name.contains('/') && self.inventory.merged.all_host_names.iter().any(|known| known == name) => {
                    Err((format!("--limit leaves out {name}, whose files are copied"), format!("add {name} to --limit")))
                }
                Some((name, _)) if !name.contains('/') => Err((
                    format!("`{}` is no host of this inventory", shorten(name)),
                    "write master:PATH or HOST:PATH; a file of the laptop with a colon in its name begins with ./".to_owned(),
                )),
                _ => Ok(FileSource::LaptopFiles),
            };
        };
        validate_host_path(path)?;
        validate_file_pattern(path)?;
        Ok(FileSource::HostFiles { host, path: path.to_owned() })
    }
}

/// Whether a path is in a directory. Whose home `~` is, is not known here: there a file of ours on the host refuses the delete.
fn is_surely_in(path: &str, directory: &str) -> bool {
    path.starts_with('~') == directory.starts_with('~') && contains_path(directory, path)
}

/// Refuses a `delete` in a directory that another task writes to.
pub(super) fn check_deletions(tasks: &[PrepareTask], run_dir: &str, list: &YamlNode, errors: &mut InventoryErrors) {
    let deleting = |files: &FileTask| matches!(files.source, FileSource::Directory { delete: true, .. });
    let targets = tasks.iter().filter_map(|task| Some((task, task.files.as_ref()?)));
    for (task, files) in targets.clone().filter(|(_, files)| deleting(files)) {
        let is_in_directory = |other: &FileTask| {
            let mut pairs = files.to.iter().zip(&other.to).filter_map(|(own, other)| Some((own.as_deref()?, other.as_deref()?)));
            files.in_container == other.in_container && pairs.any(|(own, other)| is_surely_in(other, own))
        };
        let node = list.items().get(task.number.saturating_sub(1) as usize).and_then(|node| node.get_path(&["sync", "delete"]));
        let holds_runs = !files.in_container && files.to.iter().flatten().any(|to| is_surely_in(run_dir, to));
        if let (true, Some(node)) = (holds_runs, node) {
            let message = format!("it would remove `run_dir` ({}): the logs and the lock of every run", shorten(run_dir));
            errors.report(&node.location, message, "sync to a directory that holds nothing else, or move `run_dir`");
        }
        if let (Some((other, _)), Some(node)) =
            (targets.clone().find(|(other, files)| other.number != task.number && is_in_directory(files)), node)
        {
            let message = format!("it would remove what the task `{}` sends", shorten(&other.name));
            errors.report(&node.location, message, "let each task have a directory of its own, or leave out `delete`");
        }
    }
}

/// The directories of all hosts, and the name that a single file gets.
type SplitTargets = (Vec<Option<String>>, Option<String>);

/// Splits destinations into directories and the name that a single file gets: none where they end with `/`.
fn split_targets(to: Vec<Option<String>>, is_pattern: bool) -> Result<SplitTargets, (String, String)> {
    let mut names = Vec::new();
    let directories = to.into_iter().map(|path| {
        path.map(|path| {
            let (directory, name) = split_target(&path);
            names.push(name);
            directory
        })
    });
    let directories = directories.collect();
    names.dedup();
    match (names.as_slice(), is_pattern) {
        ([] | [None], _) => Ok((directories, None)),
        ([Some(_)], true) => Err(("several files may match".to_owned(), "end `to` with / so that it names a directory".to_owned())),
        ([Some(name)], false) => {
            let reserved = name == "." || name.starts_with(".orchestrate-") || name.len() > MAX_NAME_BYTES;
            match reserved {
                true => Err((format!("`{}` cannot name a file", shorten(name)), "choose another name".to_owned())),
                false => Ok((directories, Some(name.clone()))),
            }
        }
        _ => Err((
            "the file has another name on each host".to_owned(),
            "let only its directory differ between hosts, for example /data/{{ host.name }}/config.json".to_owned(),
        )),
    }
}

/// The directory and the name of a destination; no name: the path is a directory.
fn split_target(path: &str) -> (String, Option<String>) {
    match path.rsplit_once('/') {
        Some((directory, name)) if !name.is_empty() => {
            (if directory.is_empty() { "/".to_owned() } else { directory.to_owned() }, Some(name.to_owned()))
        }
        _ => (path.to_owned(), None),
    }
}

/// A file, or a pattern of file names: only the last component may have wildcards.
fn validate_file_pattern(path: &str) -> Verdict {
    let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
    let is_directory = matches!(name, "" | "." | ".." | "~");
    require(!is_directory, format!("`{}` names a directory", shorten(path)), "name files, or send the directory by `sync`")?;
    require(!has_wildcards(directory), "a wildcard in a directory's name", "use wildcards in the file's name alone")
}

fn validate_mode(text: &str) -> Verdict {
    let digits = text.strip_prefix('0').filter(|rest| rest.len() == 3).unwrap_or(text);
    let is_mode = digits.len() == 3 && digits.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    let hint = "write three octal digits, for example \"0644\"; setuid, setgid and sticky are refused";
    require(is_mode, format!("`{}` is no mode", shorten(text)), hint)?;
    // A host proves a file by reading it, with its mode, before it gets its name.
    let message = format!("`{}` does not let the owner read the file, so the host cannot check what arrived", shorten(text));
    require(digits.starts_with(['4', '5', '6', '7']), message, "let the owner read it, for example \"0400\"")
}

/// Absolute or below the home: the directory that a relative path starts from would be unclear.
fn validate_host_path(text: &str) -> Verdict {
    let fine = is_absolute_or_home(text) && !text.contains(['\0', '\n']) && text.split('/').all(|component| component != "..");
    require(fine, format!("`{text}` is no path on a host"), "write an absolute path or ~/…, without `..`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_directories_or_names() {
        for (to, directory, name) in
            [("/tmp/", "/tmp/", None), ("~", "~", None), ("~/", "~/", None), ("/x", "/", Some("x")), ("~/a/b.whl", "~/a", Some("b.whl"))]
        {
            assert_eq!(split_target(to), (directory.to_owned(), name.map(str::to_owned)), "{to}");
        }
        let paths = |list: &[&str]| list.iter().map(|path| Some((*path).to_owned())).collect::<Vec<_>>();
        assert!(split_targets(paths(&["/tmp/x.whl"]), true).is_err_and(|(message, _)| message == "several files may match"));
        assert!(split_targets(paths(&["/a/1", "/a/2"]), false).is_err(), "one name for all hosts");
        assert!(split_targets(paths(&["/a/.orchestrate-part"]), false).is_err());
        let split = split_targets(paths(&["/1/x", "/2/x"]), false).expect("a name");
        assert_eq!(split, (paths(&["/1", "/2"]), Some("x".to_owned())));
    }

    #[test]
    fn modes_and_patterns_are_strict() {
        for good in ["0644", "755", "0400"] {
            assert!(validate_mode(good).is_ok(), "{good}");
        }
        for bad in ["4755", "0888", "64", "u+x", "", "00644", "1644"] {
            assert!(validate_mode(bad).is_err_and(|(message, _)| message.ends_with("is no mode")), "{bad}");
        }
        for bad in ["0222", "0000", "377", "044"] {
            assert!(validate_mode(bad).is_err_and(|(message, _)| message.contains("does not let the owner read")), "{bad}");
        }
        for good in ["~/dist/x-*.whl", "x[0-9]", "/a"] {
            assert!(validate_file_pattern(good).is_ok(), "{good}");
        }
        for bad in ["~/d*/x", "~/dist/", "~", "/a/.", "."] {
            assert!(validate_file_pattern(bad).is_err(), "{bad}");
        }
    }
}
