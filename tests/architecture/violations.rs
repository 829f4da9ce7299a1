//! What breaks a limit of the architecture, and the message about it. There are no exceptions.

use crate::cycles::FileCycle;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ArchitectureRule {
    FileLines,
    FunctionLines,
    ParameterCount,
    DuplicateTypes,
    Cycles,
}

impl ArchitectureRule {
    /// The meaning of the number, and what to do.
    fn explain(self) -> (&'static str, &'static str) {
        match self {
            ArchitectureRule::FileLines => ("lines of a file: in src at most 350, else 500", "divide the file by meaning"),
            ArchitectureRule::FunctionLines => {
                ("lines of a function from `fn` to its closing brace, at most 60", "divide the function by meaning")
            }
            ArchitectureRule::ParameterCount => (
                "parameters of a function with `self`, at most 5; a trait's implementations do not count",
                "group what belongs together in a type",
            ),
            ArchitectureRule::DuplicateTypes => {
                ("files that define a visible type with this name, at most 1", "give one of them a name of its own (or make it private)")
            }
            ArchitectureRule::Cycles => (
                "edges between files that name each other's items, directly or through others",
                "cut an edge: move what both need into a file beneath them",
            ),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) rule: ArchitectureRule,
    /// A location or a name; for a cycle its files, separated by spaces.
    pub(crate) key: String,
    pub(crate) number: usize,
    /// Where the violation is.
    pub(crate) locations: Vec<String>,
}

impl Violation {
    pub(crate) fn new(rule: ArchitectureRule, key: &str, number: usize) -> Self {
        Violation { rule, key: key.to_owned(), number, locations: Vec::new() }
    }

    pub(crate) fn from_cycle(cycle: &FileCycle) -> Self {
        Violation {
            locations: cycle.describe_edges(),
            ..Violation::new(ArchitectureRule::Cycles, &cycle.files.join(" "), cycle.edges.len())
        }
    }

    pub(crate) fn message(&self) -> String {
        let (meaning, remedy) = self.rule.explain();
        let places: String = self.locations.iter().flat_map(|text| text.lines()).map(|line| format!("    {line}\n")).collect();
        format!("{}: {} ({meaning})\n{places}  Remedy: {remedy}.", self.key, self.number)
    }
}
