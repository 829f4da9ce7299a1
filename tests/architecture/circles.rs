//! Circles of files: each names, directly or through others, an item that is defined in each other one.
//!
//! Passing an item on (`pub use`) is no edge; who uses it names the file that defines it. A name of a module alone is no edge.

use std::collections::{BTreeMap, BTreeSet};

use crate::names::{Crate, Target};
use crate::syntax::Kind;

/// From a file to a file: the names, each with the first line where it stands.
pub(crate) type Edges = BTreeMap<(String, String), BTreeMap<String, usize>>;

pub(crate) struct Circle {
    pub(crate) files: Vec<String>,
    pub(crate) edges: Edges,
}

impl Circle {
    /// One line an edge, those of the fewest names first: what to cut.
    pub(crate) fn edge_lines(&self) -> Vec<String> {
        let mut edges: Vec<_> = self.edges.iter().collect();
        edges.sort_by_key(|(_, names)| names.len());
        let tell = |((from, to), names): (&(String, String), &BTreeMap<String, usize>)| {
            let names: Vec<String> = names.iter().map(|(name, line)| format!("{name} (line {line})")).collect();
            format!("{from} uses {to}: {}", names.join(", "))
        };
        edges.into_iter().map(tell).collect()
    }
}

pub(crate) fn find(krate: &Crate) -> Vec<Circle> {
    let edges = edges(krate);
    let mut search = Search::default();
    for (from, to) in edges.keys() {
        search.next.entry(from).or_default().insert(to);
    }
    let starts: Vec<&str> = search.next.keys().copied().collect();
    for start in starts {
        if !search.number.contains_key(start) {
            search.visit(start);
        }
    }
    let mut circles: Vec<Circle> = search.found.iter().map(|files| circle(files, &edges)).collect();
    circles.sort_by(|a, b| a.files.cmp(&b.files));
    circles
}

fn edges(krate: &Crate) -> Edges {
    let mut edges = Edges::new();
    for named in krate.named().into_iter().filter(|named| !named.test && named.kind != Kind::Reexport) {
        if let Some(Target::Item { file, name }) = named.target
            && file != named.file
        {
            let line = edges.entry((named.file.to_owned(), file)).or_default().entry(name).or_insert(named.line);
            *line = named.line.min(*line);
        }
    }
    edges
}

fn circle(files: &BTreeSet<&str>, edges: &Edges) -> Circle {
    let inside = edges.iter().filter(|((from, to), _)| files.contains(from.as_str()) && files.contains(to.as_str()));
    Circle {
        files: files.iter().map(|file| (*file).to_owned()).collect(),
        edges: inside.map(|(ends, names)| (ends.clone(), names.clone())).collect(),
    }
}

/// Tarjan's strongly connected components.
#[derive(Default)]
struct Search<'a> {
    next: BTreeMap<&'a str, BTreeSet<&'a str>>,
    number: BTreeMap<&'a str, usize>,
    stack: Vec<&'a str>,
    found: Vec<BTreeSet<&'a str>>,
}

impl<'a> Search<'a> {
    fn visit(&mut self, at: &'a str) -> usize {
        let number = self.number.len();
        self.number.insert(at, number);
        self.stack.push(at);
        let mut low = number;
        for next in self.next.get(at).cloned().unwrap_or_default() {
            low = match self.number.get(next) {
                None => low.min(self.visit(next)),
                Some(other) if self.stack.contains(&next) => low.min(*other),
                Some(_) => low,
            };
        }
        if low == number {
            let from = self.stack.iter().position(|file| *file == at).unwrap_or(0);
            let files: BTreeSet<&str> = self.stack.split_off(from).into_iter().collect();
            if files.len() > 1 {
                self.found.push(files);
            }
        }
        low
    }
}
