//! Reads ssh_config and what it includes, once for all hosts.
//!
//! Owns the files; `resolve` evaluates them for a host.
#![expect(clippy::disallowed_methods, reason = "ssh_config is read here")]

use std::collections::HashMap;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::config_line::{self, SshConfigFile, SshConfigStatement};
use super::tokens::home_dir;
use crate::text::glob::has_wildcards;

/// Where OpenSSH keeps what holds for every user.
const SYSTEM_CONFIG: &str = "/etc/ssh/ssh_config";
/// Includes one within another, as with OpenSSH.
const MAX_INCLUDE_DEPTH: usize = 16;
/// The longest file that is read.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The most files of one ssh_config.
const MAX_FILES: usize = 4096;

/// Reads the files that hold: `config`, or else the user's and the system's. An error names the file.
pub(crate) fn read_config_files(config: Option<&Path>, home: &Path) -> Result<Vec<Arc<SshConfigFile>>, String> {
    read_config_files_from(config, home, Path::new(SYSTEM_CONFIG))
}

fn read_config_files_from(config: Option<&Path>, home: &Path, system: &Path) -> Result<Vec<Arc<SshConfigFile>>, String> {
    let mut reader =
        SshConfigReader { home, system_config: system, is_user_config: true, include_stack: Vec::new(), parsed_files: HashMap::new() };
    if let Some(config) = config {
        return match reader.read_file(config, false) {
            Ok(Some(source)) => Ok(vec![source]),
            Ok(None) => Err(format!("{} not found", display_path(config, home))),
            Err(what) => Err(what),
        };
    }
    let mut sources = Vec::new();
    for (path, users) in [(home.join(".ssh/config"), true), (system.to_owned(), false)] {
        reader.is_user_config = users;
        sources.extend(reader.read_file(&path, users)?);
    }
    Ok(sources)
}

struct SshConfigReader<'a> {
    home: &'a Path,
    system_config: &'a Path,
    /// Whether the file at the root is the user's: relative Includes begin at `~/.ssh`, else at the system's folder.
    is_user_config: bool,
    /// The files that are being read, each included by the one before it.
    include_stack: Vec<PathBuf>,
    parsed_files: HashMap<(PathBuf, bool), Arc<SshConfigFile>>,
}

impl SshConfigReader<'_> {
    /// Reads a file; nothing where there is none. `guard`: others may not be able to write it.
    fn read_file(&mut self, path: &Path, guard: bool) -> Result<Option<Arc<SshConfigFile>>, String> {
        let key = (path.to_owned(), self.is_user_config);
        if let Some(known) = self.parsed_files.get(&key) {
            return Ok(Some(known.clone()));
        }
        let name = display_path(path, self.home);
        let Some(text) = read_text(path, guard).map_err(|what| format!("{name}: {what}"))? else { return Ok(None) };
        if self.include_stack.len() > MAX_INCLUDE_DEPTH {
            return Err(format!("Include is nested more than {MAX_INCLUDE_DEPTH} levels deep, at {name}"));
        }
        if self.parsed_files.len() >= MAX_FILES {
            return Err(format!("more than {MAX_FILES} included files, at {name}"));
        }
        self.include_stack.push(path.to_owned());
        let lines = config_line::parse_config_lines(&text, |words| self.resolve_include(words));
        self.include_stack.pop();
        let source = Arc::new(SshConfigFile { name: name.into(), lines });
        self.parsed_files.insert(key, source.clone());
        Ok(Some(source))
    }

    fn resolve_include(&mut self, words: &[String]) -> Result<SshConfigStatement, String> {
        // Newer versions of ssh fill in tokens; older ones take them literally. ssh itself knows which it is.
        if words.iter().any(|w| w.contains('%') || w.contains("${")) {
            return Ok(SshConfigStatement::IncludeWithTokens);
        }
        let mut sources = Vec::new();
        for word in words {
            for path in self.expand_include(word)? {
                if let Some(at) = self.include_stack.iter().position(|p| *p == path) {
                    let chain: Vec<String> =
                        self.include_stack.iter().skip(at).chain([&path]).map(|p| display_path(p, self.home)).collect();
                    return Err(format!("Include forms a cycle: {}", chain.join(" → ")));
                }
                sources.extend(self.read_file(&path, true).map_err(|what| format!("Include: {what}"))?);
            }
        }
        Ok(SshConfigStatement::Include(sources))
    }

    /// The files that a word of an Include means, in order.
    fn expand_include(&self, word: &str) -> Result<Vec<PathBuf>, String> {
        let path = match word.strip_prefix('~') {
            Some(_) if !self.is_user_config => {
                return Err(format!("Include `{word}`: the system-wide file may not use ~"));
            }
            Some(rest) => {
                let (user, rest) = rest.split_once('/').unwrap_or((rest, ""));
                match home_dir(user, self.home) {
                    Some(home) => home.join(rest.trim_start_matches('/')),
                    None => return Ok(Vec::new()),
                }
            }
            None if self.is_user_config => self.home.join(".ssh").join(word),
            None => self.system_config.parent().unwrap_or(self.system_config).join(word),
        };
        let pattern = path.to_string_lossy();
        if !has_wildcards(&pattern) {
            return Ok(vec![path]);
        }
        // `**` means no more than `*` to OpenSSH.
        let mut plain = String::with_capacity(pattern.len());
        pattern.chars().for_each(|c| {
            if c != '*' || !plain.ends_with('*') {
                plain.push(c)
            }
        });
        let options = glob::MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };
        let found = glob::glob_with(&plain, options).map_err(|e| format!("Include `{word}`: {}", e.msg))?;
        // A folder that may not be read holds nothing for OpenSSH either.
        Ok(found.filter_map(|entry| entry.inspect_err(|error| tracing::debug!(%error, "not included")).ok()).collect())
    }
}

/// The text of a file; nothing where there is none, and an empty one for a folder.
fn read_text(path: &Path, guard: bool) -> Result<Option<String>, String> {
    let failed = |e: std::io::Error| format!("could not be read: {e}");
    let mut file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed(e)),
    };
    let meta = file.metadata().map_err(failed)?;
    if guard && !has_safe_permissions(&meta) {
        return Err("other users can write it, so ssh rejects it (run chmod go-w; you must own it)".to_owned());
    }
    if meta.is_dir() {
        return Ok(Some(String::new()));
    }
    let mut bytes = Vec::new();
    file.by_ref().take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("longer than {MAX_FILE_BYTES} bytes"));
    }
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Whether only we and root can have written a file. A group that contains only us is accepted, as by Debian's ssh.
fn has_safe_permissions(meta: &std::fs::Metadata) -> bool {
    let own = rustix::process::getuid().as_raw();
    let alone = || {
        let group = nix::unistd::Group::from_gid(nix::unistd::Gid::from_raw(meta.gid())).ok().flatten();
        let owner = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(meta.uid())).ok().flatten();
        cfg!(target_os = "linux")
            && matches!((group, owner), (Some(g), Some(o)) if o.gid == g.gid && g.name == o.name && g.mem.iter().all(|m| *m == o.name))
    };
    (meta.uid() == 0 || meta.uid() == own) && meta.mode() & 0o002 == 0 && (meta.mode() & 0o020 == 0 || alone())
}

fn display_path(path: &Path, home: &Path) -> String {
    match path.strip_prefix(home) {
        Ok(rest) if home != Path::new("/") => format!("~/{}", rest.display()),
        _ => path.display().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    /// A home folder with these files below `.ssh`.
    fn create_home(files: &[(&str, &str)]) -> tempfile::TempDir {
        let home = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = home.path().join(".ssh").join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, text).expect("written");
        }
        home
    }

    fn read_home(home: &tempfile::TempDir) -> Result<Vec<Arc<SshConfigFile>>, String> {
        read_config_files_from(None, home.path(), &home.path().join(".ssh/system"))
    }

    /// The files in the order in which they are read, and what is wrong with their lines.
    fn files_and_errors(sources: &[Arc<SshConfigFile>]) -> Vec<String> {
        let mut all = Vec::new();
        for source in sources {
            all.push(source.name.to_string());
            for line in &source.lines {
                match &line.statement {
                    Ok(SshConfigStatement::Include(files)) => all.extend(files_and_errors(files)),
                    Ok(_) => {}
                    Err(what) => all.push(format!("{}:{}: {what}", source.name, line.number)),
                }
            }
        }
        all
    }

    #[test]
    fn include_globs_resolve_below_ssh_dir() {
        let home = create_home(&[
            ("config", "Include conf.d/*.conf ~/.ssh/one nowhere\nPort 1\n"),
            ("conf.d/b.conf", "Include conf.d/deep/*\n"),
            ("conf.d/a.conf", "User a\n"),
            ("conf.d/.hidden.conf", "User h\n"),
            ("conf.d/deep/x", "User x\n"),
            ("one", "User one\n"),
            ("system", "Include sys.d/**\n"),
            ("sys.d/s", "User s\n"),
        ]);
        let files = files_and_errors(&read_home(&home).expect("read"));
        let expected = ["config", "conf.d/a.conf", "conf.d/b.conf", "conf.d/deep/x", "one", "system", "sys.d/s"];
        assert_eq!(files, expected.map(|f| format!("~/.ssh/{f}")));
    }

    #[test]
    fn include_cycle_reports_its_chain() {
        let home = create_home(&[("config", "\nInclude a\n"), ("a", "Host x\n Include b\n"), ("b", "Include a\n")]);
        let reported = files_and_errors(&read_home(&home).expect("read"));
        assert_eq!(reported.last().map(String::as_str), Some("~/.ssh/b:1: Include forms a cycle: ~/.ssh/a → ~/.ssh/b → ~/.ssh/a"));
    }

    #[test]
    fn include_depth_is_limited_to_sixteen() {
        for (depth, fine) in [(16, true), (17, false)] {
            let names: Vec<(String, String)> = (0..=depth).map(|i| (format!("f{i}"), format!("Include f{}\n", i + 1))).collect();
            let mut files: Vec<(&str, &str)> = names.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
            files[0].0 = "config";
            let reported = files_and_errors(&read_home(&create_home(&files)).expect("read"));
            assert_eq!(reported.iter().any(|t| t.contains("nested more than 16 levels deep")), !fine, "{depth}: {reported:?}");
        }
    }

    #[test]
    fn writable_or_unreadable_files_are_rejected() {
        let home = create_home(&[("config", "Include a\n"), ("a", "User a\n")]);
        let path = |name: &str| home.path().join(".ssh").join(name);
        let mode = |name: &str, mode| std::fs::set_permissions(path(name), std::fs::Permissions::from_mode(mode)).expect("set");
        mode("a", 0o666);
        let output = files_and_errors(&read_home(&home).expect("read")).join("\n");
        assert!(output.contains("~/.ssh/config:1: Include: ~/.ssh/a: other users can write it"), "{output}");
        mode("a", 0o600);
        mode("config", 0o622);
        assert!(read_home(&home).expect_err("refused").starts_with("~/.ssh/config: other users can write it"));
        assert!(
            read_config_files_from(Some(&path("config")), home.path(), Path::new("/nowhere")).is_ok(),
            "a file that was named is not judged"
        );
        mode("config", 0o600);
        std::fs::remove_file(path("a")).expect("removed");
        symlink(path("a"), path("a")).expect("linked");
        let output = files_and_errors(&read_home(&home).expect("read")).join("\n");
        assert!(output.contains("~/.ssh/config:1: Include: ~/.ssh/a: could not be read: "), "{output}");
    }

    #[test]
    fn missing_file_is_an_error_only_if_named() {
        let home = create_home(&[]);
        assert!(read_home(&home).expect("nothing to read").is_empty());
        let error = read_config_files_from(Some(&home.path().join("x")), home.path(), Path::new("/nowhere")).expect_err("named");
        assert_eq!(error, "~/x not found");
    }
}
