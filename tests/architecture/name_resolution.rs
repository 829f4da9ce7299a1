//! The module tree over all files, and the item that a path names: re-exports resolve to the file that defines the item.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::path::{Component, Path, PathBuf};
use std::thread;

use crate::syntax::{self, PathReference, ReferenceKind, SourceFile};

/// The root files of the library and of the program.
const CRATE_ROOTS: [&str; 2] = ["src/lib.rs", "src/main.rs"];
/// The maximum length of a chain of re-exports.
const MAX_REEXPORT_DEPTH: usize = 16;

pub(crate) struct Crate {
    /// By path: `src/cli/up.rs`.
    pub(crate) files: BTreeMap<String, SourceFile>,
    /// Files that are not valid Rust, and files that no module declares.
    pub(crate) problems: Vec<String>,
    modules: Vec<ModuleNode>,
    roots: BTreeMap<String, usize>,
    /// Files for tests only.
    test_only_files: BTreeSet<String>,
}

struct ModuleNode {
    file: String,
    /// The index of the module in the file.
    module_index: usize,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ResolvedTarget {
    Item {
        file: String,
        name: String,
    },
    /// The module's own file.
    Module(String),
    /// A path into another crate, as written.
    ForeignPath(Vec<String>),
}

/// A path in a file, and what it names.
pub(crate) struct NamedPath<'a> {
    pub(crate) file: &'a str,
    pub(crate) line: usize,
    pub(crate) in_test: bool,
    pub(crate) kind: ReferenceKind,
    /// `None` for names that only the compiler resolves: locals, generics, the prelude.
    pub(crate) target: Option<ResolvedTarget>,
    /// The room that the path goes through, for example the room of a re-export.
    pub(crate) via_room: Option<String>,
}

impl Crate {
    /// Builds the crate from texts by path; only those below `src/` count.
    pub(crate) fn from_sources(texts: &BTreeMap<String, String>) -> Self {
        let mut problems = Vec::new();
        let mut files = BTreeMap::new();
        for (path, read) in parse_files(texts) {
            match read {
                Ok(file) => drop(files.insert(path, file)),
                Err(error) => problems.push(format!("{path}: is no Rust: {error}")),
            }
        }
        let mut krate = Crate { files, problems, modules: Vec::new(), roots: BTreeMap::new(), test_only_files: BTreeSet::new() };
        for root in CRATE_ROOTS.into_iter().filter(|root| texts.contains_key(*root)) {
            let at = krate.add_file(root, None, false);
            krate.roots.insert(root.to_owned(), at);
        }
        let reached: BTreeSet<&str> = krate.modules.iter().map(|node| node.file.as_str()).collect();
        let lost: Vec<String> =
            krate.files.keys().filter(|path| path.starts_with("src/") && !reached.contains(path.as_str())).cloned().collect();
        krate.problems.extend(lost.into_iter().map(|path| format!("{path}: no module declares this file")));
        krate
    }

    /// Everything that the files below `src/` name, including test code.
    pub(crate) fn named_paths(&self) -> Vec<NamedPath<'_>> {
        let mut found = Vec::new();
        for (at, node) in self.modules.iter().enumerate() {
            let Some(module) = self.files.get(&node.file).map(|file| &file.modules[node.module_index]) else { continue };
            for reference in &module.references {
                let PathReference { line, kind, .. } = *reference;
                // An import cannot resolve to itself.
                let own = if matches!(kind, ReferenceKind::Import | ReferenceKind::Reexport) { reference.path.last() } else { None };
                let skip = SkipImport { name: own.map(String::as_str), in_import: own.is_some() };
                let target = self.resolve(at, &reference.path, skip, 0);
                let test = reference.in_test || self.test_only_files.contains(&node.file);
                found.push(NamedPath {
                    file: &node.file,
                    line,
                    in_test: test,
                    kind,
                    target,
                    via_room: self.room_in_path(at, &reference.path),
                });
            }
        }
        found
    }

    pub(crate) fn is_test_only(&self, file: &str) -> bool {
        self.test_only_files.contains(file)
    }

    /// The top-level modules of the library.
    pub(crate) fn rooms(&self) -> BTreeSet<&str> {
        let root = self.roots.get(CRATE_ROOTS[0]).map(|at| &self.modules[*at].children);
        root.into_iter().flat_map(|children| children.keys().map(String::as_str)).collect()
    }

    fn add_file(&mut self, path: &str, parent: Option<usize>, test: bool) -> usize {
        let at = self.modules.len();
        self.modules.push(ModuleNode { file: path.to_owned(), module_index: 0, parent, children: BTreeMap::new() });
        let Some(file) = self.files.get(path) else { return at };
        let inside: Vec<Option<(usize, String)>> = file.modules.iter().map(|module| module.parent.clone()).collect();
        let declared: Vec<(usize, String, PathBuf, bool)> = module_declarations(path, file).collect();
        if test {
            self.test_only_files.insert(path.to_owned());
        }
        for (index, (outer, name)) in inside.into_iter().enumerate().filter_map(|(index, inside)| Some((index, inside?))) {
            self.modules.push(ModuleNode {
                file: path.to_owned(),
                module_index: index,
                parent: Some(at + outer),
                children: BTreeMap::new(),
            });
            self.modules[at + outer].children.insert(name, at + index);
        }
        for (outer, name, base, only_tests) in declared {
            let beside = [base.with_extension("rs"), base.join("mod.rs")].map(|path| path.to_string_lossy().into_owned());
            let Some(path) = beside.iter().find(|path| self.files.contains_key(*path)) else { continue };
            let child = self.add_file(path, Some(at + outer), test || only_tests);
            self.modules[at + outer].children.insert(name, child);
        }
        at
    }

    fn root_index(&self, mut at: usize) -> usize {
        while let Some(parent) = self.modules[at].parent {
            at = parent;
        }
        at
    }

    /// The module where the rest of a path is looked up, for paths with an explicit start.
    fn resolve_path_start<'a>(&self, at: usize, path: &'a [String]) -> Option<(usize, &'a [String])> {
        let (first, mut rest) = path.split_first()?;
        let mut start = match first.as_str() {
            "crate" => self.root_index(at),
            "self" => at,
            "super" => self.modules[at].parent?,
            _ => return None,
        };
        while rest.first().is_some_and(|next| next == "super") {
            start = self.modules[start].parent?;
            rest = &rest[1..];
        }
        Some((start, rest))
    }

    fn resolve(&self, at: usize, path: &[String], skip: SkipImport<'_>, depth: usize) -> Option<ResolvedTarget> {
        let (first, rest) = path.split_first()?;
        if depth > MAX_REEXPORT_DEPTH || first == "Self" {
            return None;
        }
        if first.is_empty() {
            return Some(ResolvedTarget::ForeignPath(rest.to_vec()));
        }
        if let Some((start, rest)) = self.resolve_path_start(at, path) {
            return self.resolve_in_module(start, rest, SkipImport::none(), depth);
        }
        if let Some(found) = self.resolve_in_module(at, path, skip, depth) {
            return Some(found);
        }
        let lower = first.starts_with(|letter: char| letter.is_ascii_lowercase());
        (lower && (skip.in_import || !rest.is_empty())).then(|| ResolvedTarget::ForeignPath(path.to_vec()))
    }

    /// Resolves a path from a module downwards.
    fn resolve_in_module(&self, at: usize, path: &[String], skip: SkipImport<'_>, depth: usize) -> Option<ResolvedTarget> {
        let node = &self.modules[at];
        let module = &self.files.get(&node.file)?.modules[node.module_index];
        let Some((first, rest)) = path.split_first() else { return Some(ResolvedTarget::Module(node.file.clone())) };
        let child = node.children.get(first);
        if let (Some(child), false) = (child, rest.is_empty())
            && let Some(found) = self.resolve_in_module(*child, rest, SkipImport::none(), depth)
        {
            return Some(found);
        }
        if module.items.contains(first) {
            return Some(ResolvedTarget::Item { file: node.file.clone(), name: first.clone() });
        }
        let imports = module.imports.iter().filter(|import| &import.name == first && skip.name != Some(first.as_str()));
        for import in imports {
            let full = [import.path.as_slice(), rest].concat();
            if let Some(found) = self.resolve(at, &full, SkipImport { name: Some(first), in_import: true }, depth + 1) {
                return Some(found);
            }
        }
        if let (Some(child), true) = (child, rest.is_empty()) {
            return Some(ResolvedTarget::Module(self.modules[*child].file.clone()));
        }
        let globs = module.imports.iter().filter(|import| import.name == "*" && skip.name != Some("*"));
        globs.into_iter().find_map(|glob| {
            let full = [glob.path.as_slice(), path].concat();
            let found = self.resolve(at, &full, SkipImport { name: Some("*"), in_import: true }, depth + 1)?;
            matches!(found, ResolvedTarget::Item { .. }).then_some(found)
        })
    }

    /// The room that a path's first module names.
    fn room_in_path(&self, at: usize, path: &[String]) -> Option<String> {
        let (start, rest) = self.resolve_path_start(at, path)?;
        let top = self.modules[start].parent.is_none();
        rest.first().filter(|_| top).cloned()
    }
}

/// The import that must not resolve to itself.
#[derive(Clone, Copy)]
struct SkipImport<'a> {
    name: Option<&'a str>,
    /// The path is in a `use`: a single name may be a crate.
    in_import: bool,
}

impl SkipImport<'_> {
    fn none() -> Self {
        SkipImport { name: None, in_import: false }
    }
}

/// The modules that a file declares: the parent module, the name, the file stem, and whether it is for tests only.
fn module_declarations<'a>(path: &'a str, file: &'a SourceFile) -> impl Iterator<Item = (usize, String, PathBuf, bool)> + 'a {
    let own = Path::new(path);
    let folder = own.parent().unwrap_or(Path::new("")).to_owned();
    let stem = own.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let beneath = if matches!(stem.as_str(), "mod" | "lib" | "main") { folder.clone() } else { folder.join(stem) };
    file.modules.iter().enumerate().flat_map(move |(at, module)| {
        let mut names = Vec::new();
        let mut outer = module;
        while let Some((next, name)) = &outer.parent {
            names.insert(0, name.clone());
            outer = &file.modules[*next];
        }
        let (folder, beneath) = (folder.clone(), beneath.clone());
        module.declarations.iter().map(move |declared| {
            let base = match &declared.path_attribute {
                Some(file) => normalize_path(&folder.join(file)).with_extension(""),
                None => names.iter().fold(beneath.clone(), |path, name| path.join(name)).join(&declared.name),
            };
            (at, declared.name.clone(), base, declared.test_only)
        })
    })
}

/// The path without `..`.
fn normalize_path(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut tidied, part| {
        match part {
            Component::ParentDir => drop(tidied.pop()),
            part => tidied.push(part),
        }
        tidied
    })
}

/// Parses the files in parallel on all cores.
fn parse_files(texts: &BTreeMap<String, String>) -> Vec<(String, syn::Result<SourceFile>)> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let all: Vec<(&String, &String)> = texts.iter().collect();
    let share = |core: usize| {
        let mine = all.iter().skip(core).step_by(cores);
        mine.map(|(path, text)| ((*path).clone(), syntax::parse_source(text))).collect::<Vec<_>>()
    };
    thread::scope(|scope| {
        let share = &share;
        let workers: Vec<_> = (0..cores).map(|core| scope.spawn(move || share(core))).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}
