//! Cycles of files: each file names, directly or through others, an item that is defined in every other one.
//!
//! A re-export (`pub use`) is not an edge; its users name the file that defines the item. The name of a module alone is not an edge.

use std::collections::{BTreeMap, BTreeSet};

use crate::name_resolution::{Crate, ResolvedTarget};
use crate::syntax::ReferenceKind;

/// Edges between two files: the names, each with the line of its first use.
pub(crate) type FileEdges = BTreeMap<(String, String), BTreeMap<String, usize>>;

pub(crate) struct FileCycle {
    pub(crate) files: Vec<String>,
    pub(crate) edges: FileEdges,
}

impl FileCycle {
    /// One line per edge; those with the fewest names, the easiest to cut, come first.
    pub(crate) fn describe_edges(&self) -> Vec<String> {
        let mut edges: Vec<_> = self.edges.iter().collect();
        edges.sort_by_key(|(_, names)| names.len());
        let describe = |((from, to), names): (&(String, String), &BTreeMap<String, usize>)| {
            let names: Vec<String> = names.iter().map(|(name, line)| format!("{name} (line {line})")).collect();
            format!("{from} uses {to}: {}", names.join(", "))
        };
        edges.into_iter().map(describe).collect()
    }
}

pub(crate) fn find_cycles(krate: &Crate) -> Vec<FileCycle> {
    let edges = collect_edges(krate);
    let mut search = TarjanSearch::default();
    for (from, to) in edges.keys() {
        search.successors.entry(from).or_default().insert(to);
    }
    let starts: Vec<&str> = search.successors.keys().copied().collect();
    for start in starts {
        if !search.indices.contains_key(start) {
            search.visit(start);
        }
    }
    let mut circles: Vec<FileCycle> = search.components.iter().map(|files| build_cycle(files, &edges)).collect();
    circles.sort_by(|a, b| a.files.cmp(&b.files));
    circles
}

fn collect_edges(krate: &Crate) -> FileEdges {
    let mut edges = FileEdges::new();
    for named in krate.named_paths().into_iter().filter(|named| !named.in_test && named.kind != ReferenceKind::Reexport) {
        if let Some(ResolvedTarget::Item { file, name }) = named.target
            && file != named.file
        {
            let line = edges.entry((named.file.to_owned(), file)).or_default().entry(name).or_insert(named.line);
            *line = named.line.min(*line);
        }
    }
    edges
}

fn build_cycle(files: &BTreeSet<&str>, edges: &FileEdges) -> FileCycle {
    let inside = edges.iter().filter(|((from, to), _)| files.contains(from.as_str()) && files.contains(to.as_str()));
    FileCycle {
        files: files.iter().map(|file| (*file).to_owned()).collect(),
        edges: inside.map(|(ends, names)| (ends.clone(), names.clone())).collect(),
    }
}

#[derive(Default)]
struct TarjanSearch<'a> {
    successors: BTreeMap<&'a str, BTreeSet<&'a str>>,
    indices: BTreeMap<&'a str, usize>,
    stack: Vec<&'a str>,
    components: Vec<BTreeSet<&'a str>>,
}

impl<'a> TarjanSearch<'a> {
    fn visit(&mut self, at: &'a str) -> usize {
        let number = self.indices.len();
        self.indices.insert(at, number);
        self.stack.push(at);
        let mut low = number;
        for next in self.successors.get(at).cloned().unwrap_or_default() {
            low = match self.indices.get(next) {
                None => low.min(self.visit(next)),
                Some(other) if self.stack.contains(&next) => low.min(*other),
                Some(_) => low,
            };
        }
        if low == number {
            let from = self.stack.iter().position(|file| *file == at).unwrap_or(0);
            let files: BTreeSet<&str> = self.stack.split_off(from).into_iter().collect();
            if files.len() > 1 {
                self.components.push(files);
            }
        }
        low
    }
}
