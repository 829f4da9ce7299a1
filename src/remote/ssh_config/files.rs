//! Reads ssh_config and what it includes, once for all hosts.
//!
//! Uses `line`. Owns the files; what they say about a host is `walk`'s.
#![expect(clippy::disallowed_methods, reason = "ssh_config is read here")]

use std::collections::HashMap;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::line::{self, Source, Statement};
use super::tokens::home_of;

/// Where OpenSSH keeps what holds for every user.
const SYSTEM: &str = "/etc/ssh/ssh_config";
/// Includes one within another, as with OpenSSH.
const DEPTH: usize = 16;
/// The longest file that is read.
const LONGEST: u64 = 1 << 20;
/// The most files of one ssh_config.
const MOST: usize = 4096;

/// Reads the files that hold: `config`, or else the user's and the system's. An error names the file.
pub(in crate::remote) fn read(config: Option<&Path>, home: &Path) -> Result<Vec<Arc<Source>>, String> {
    read_with(config, home, Path::new(SYSTEM))
}

fn read_with(config: Option<&Path>, home: &Path, system: &Path) -> Result<Vec<Arc<Source>>, String> {
    let mut reader = Reader { home, system, users: true, stack: Vec::new(), known: HashMap::new() };
    if let Some(config) = config {
        return match reader.file(config, false) {
            Ok(Some(source)) => Ok(vec![source]),
            Ok(None) => Err(format!("there is no {}", shown(config, home))),
            Err(what) => Err(what),
        };
    }
    let mut sources = Vec::new();
    for (path, users) in [(home.join(".ssh/config"), true), (system.to_owned(), false)] {
        reader.users = users;
        sources.extend(reader.file(&path, users)?);
    }
    Ok(sources)
}

struct Reader<'a> {
    home: &'a Path,
    system: &'a Path,
    /// Whether the file at the root is the user's: relative Includes begin at `~/.ssh`, else at the system's folder.
    users: bool,
    /// The files that are being read, each included by the one before it.
    stack: Vec<PathBuf>,
    known: HashMap<(PathBuf, bool), Arc<Source>>,
}

impl Reader<'_> {
    /// Reads a file; nothing where there is none. `guard`: others may not be able to write it.
    fn file(&mut self, path: &Path, guard: bool) -> Result<Option<Arc<Source>>, String> {
        let key = (path.to_owned(), self.users);
        if let Some(known) = self.known.get(&key) {
            return Ok(Some(known.clone()));
        }
        let name = shown(path, self.home);
        let Some(text) = text(path, guard).map_err(|what| format!("{name}: {what}"))? else { return Ok(None) };
        if self.stack.len() > DEPTH {
            return Err(format!("more than {DEPTH} files include one another, the last {name}"));
        }
        if self.known.len() >= MOST {
            return Err(format!("more than {MOST} files are included, the last {name}"));
        }
        self.stack.push(path.to_owned());
        let lines = line::parse(&text, |words| self.include(words));
        self.stack.pop();
        let source = Arc::new(Source { name: name.into(), lines });
        self.known.insert(key, source.clone());
        Ok(Some(source))
    }

    fn include(&mut self, words: &[String]) -> Result<Statement, String> {
        // Newer versions of ssh fill in tokens; older ones take them literally. ssh itself knows which it is.
        if words.iter().any(|w| w.contains('%') || w.contains("${")) {
            return Ok(Statement::IncludeByHost);
        }
        let mut sources = Vec::new();
        for word in words {
            for path in self.matching(word)? {
                if let Some(at) = self.stack.iter().position(|p| *p == path) {
                    let chain: Vec<String> = self.stack.iter().skip(at).chain([&path]).map(|p| shown(p, self.home)).collect();
                    return Err(format!("Include leads in a circle: {}", chain.join(" → ")));
                }
                sources.extend(self.file(&path, true).map_err(|what| format!("Include: {what}"))?);
            }
        }
        Ok(Statement::Include(sources))
    }

    /// The files that a word of an Include means, in order.
    fn matching(&self, word: &str) -> Result<Vec<PathBuf>, String> {
        let path = match word.strip_prefix('~') {
            Some(_) if !self.users => return Err(format!("Include `{word}`: a file of the system may not speak of a home folder")),
            Some(rest) => {
                let (user, rest) = rest.split_once('/').unwrap_or((rest, ""));
                match home_of(user, self.home) {
                    Some(home) => home.join(rest.trim_start_matches('/')),
                    None => return Ok(Vec::new()),
                }
            }
            None if self.users => self.home.join(".ssh").join(word),
            None => self.system.parent().unwrap_or(self.system).join(word),
        };
        let pattern = path.to_string_lossy();
        if !pattern.contains(['*', '?', '[']) {
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
fn text(path: &Path, guard: bool) -> Result<Option<String>, String> {
    let failed = |e: std::io::Error| format!("it could not be read: {e}");
    let mut file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed(e)),
    };
    let meta = file.metadata().map_err(failed)?;
    if guard && !only_ours(&meta) {
        return Err("others can write it, so ssh does not trust it (chmod go-w, and it must be yours)".to_owned());
    }
    if meta.is_dir() {
        return Ok(Some(String::new()));
    }
    let mut bytes = Vec::new();
    file.by_ref().take(LONGEST + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > LONGEST {
        return Err(format!("it is longer than {LONGEST} bytes"));
    }
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Whether nobody but us and root can have written a file. A group that holds nobody but us is no other, as with the ssh of Debian.
fn only_ours(meta: &std::fs::Metadata) -> bool {
    let own = rustix::process::getuid().as_raw();
    let alone = || {
        let group = nix::unistd::Group::from_gid(nix::unistd::Gid::from_raw(meta.gid())).ok().flatten();
        let owner = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(meta.uid())).ok().flatten();
        cfg!(target_os = "linux")
            && matches!((group, owner), (Some(g), Some(o)) if o.gid == g.gid && g.name == o.name && g.mem.iter().all(|m| *m == o.name))
    };
    (meta.uid() == 0 || meta.uid() == own) && meta.mode() & 0o002 == 0 && (meta.mode() & 0o020 == 0 || alone())
}

fn shown(path: &Path, home: &Path) -> String {
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
    fn home(files: &[(&str, &str)]) -> tempfile::TempDir {
        let home = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = home.path().join(".ssh").join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, text).expect("written");
        }
        home
    }

    fn read(home: &tempfile::TempDir) -> Result<Vec<Arc<Source>>, String> {
        read_with(None, home.path(), &home.path().join(".ssh/system"))
    }

    /// The files in the order in which they are read, and what is wrong with their lines.
    fn told(sources: &[Arc<Source>]) -> Vec<String> {
        let mut all = Vec::new();
        for source in sources {
            all.push(source.name.to_string());
            for line in &source.lines {
                match &line.says {
                    Ok(Statement::Include(files)) => all.extend(told(files)),
                    Ok(_) => {}
                    Err(what) => all.push(format!("{}:{}: {what}", source.name, line.number)),
                }
            }
        }
        all
    }

    #[test]
    fn includes_are_found_by_globs_below_the_ssh_folder() {
        let home = home(&[
            ("config", "Include conf.d/*.conf ~/.ssh/one nowhere\nPort 1\n"),
            ("conf.d/b.conf", "Include conf.d/deep/*\n"),
            ("conf.d/a.conf", "User a\n"),
            ("conf.d/.hidden.conf", "User h\n"),
            ("conf.d/deep/x", "User x\n"),
            ("one", "User one\n"),
            ("system", "Include sys.d/**\n"),
            ("sys.d/s", "User s\n"),
        ]);
        let files = told(&read(&home).expect("read"));
        let expected = ["config", "conf.d/a.conf", "conf.d/b.conf", "conf.d/deep/x", "one", "system", "sys.d/s"];
        assert_eq!(files, expected.map(|f| format!("~/.ssh/{f}")));
    }

    #[test]
    fn a_circle_is_told_with_its_chain() {
        let home = home(&[("config", "\nInclude a\n"), ("a", "Host x\n Include b\n"), ("b", "Include a\n")]);
        let told = told(&read(&home).expect("read"));
        assert_eq!(told.last().map(String::as_str), Some("~/.ssh/b:1: Include leads in a circle: ~/.ssh/a → ~/.ssh/b → ~/.ssh/a"));
    }

    #[test]
    fn includes_may_be_sixteen_deep_and_no_deeper() {
        for (depth, fine) in [(16, true), (17, false)] {
            let names: Vec<(String, String)> = (0..=depth).map(|i| (format!("f{i}"), format!("Include f{}\n", i + 1))).collect();
            let mut files: Vec<(&str, &str)> = names.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
            files[0].0 = "config";
            let told = told(&read(&home(&files)).expect("read"));
            assert_eq!(told.iter().any(|t| t.contains("more than 16 files include one another")), !fine, "{depth}: {told:?}");
        }
    }

    #[test]
    fn files_that_others_can_write_or_nobody_can_read_are_refused() {
        let home = home(&[("config", "Include a\n"), ("a", "User a\n")]);
        let path = |name: &str| home.path().join(".ssh").join(name);
        let mode = |name: &str, mode| std::fs::set_permissions(path(name), std::fs::Permissions::from_mode(mode)).expect("set");
        mode("a", 0o666);
        let said = told(&read(&home).expect("read")).join("\n");
        assert!(said.contains("~/.ssh/config:1: Include: ~/.ssh/a: others can write it"), "{said}");
        mode("a", 0o600);
        mode("config", 0o622);
        assert!(read(&home).expect_err("refused").starts_with("~/.ssh/config: others can write it"));
        assert!(read_with(Some(&path("config")), home.path(), Path::new("/nowhere")).is_ok(), "a file that was named is not judged");
        mode("config", 0o600);
        std::fs::remove_file(path("a")).expect("removed");
        symlink(path("a"), path("a")).expect("linked");
        let said = told(&read(&home).expect("read")).join("\n");
        assert!(said.contains("~/.ssh/config:1: Include: ~/.ssh/a: it could not be read: "), "{said}");
    }

    #[test]
    fn what_is_not_there_is_missed_only_where_it_was_named() {
        let home = home(&[]);
        assert!(read(&home).expect("nothing to read").is_empty());
        let error = read_with(Some(&home.path().join("x")), home.path(), Path::new("/nowhere")).expect_err("named");
        assert_eq!(error, "there is no ~/x");
    }
}
