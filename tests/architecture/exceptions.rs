//! The list of today's violations with their numbers. Any difference fails: worse, better, new or gone. So the list shows
//! every change.

use std::collections::BTreeMap;

use crate::cycles::FileCycle;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ArchitectureRule {
    FileLines,
    FunctionLines,
    ParameterCount,
    DuplicateTypes,
    Cycles,
}

pub(crate) const ALL_RULES: [ArchitectureRule; 5] = [
    ArchitectureRule::FileLines,
    ArchitectureRule::FunctionLines,
    ArchitectureRule::ParameterCount,
    ArchitectureRule::DuplicateTypes,
    ArchitectureRule::Cycles,
];

impl ArchitectureRule {
    fn toml_section(self) -> &'static str {
        match self {
            ArchitectureRule::FileLines => "files",
            ArchitectureRule::FunctionLines => "functions",
            ArchitectureRule::ParameterCount => "parameters",
            ArchitectureRule::DuplicateTypes => "types",
            ArchitectureRule::Cycles => "circles",
        }
    }

    /// The meaning of the number.
    fn number_meaning(self) -> &'static str {
        match self {
            ArchitectureRule::FileLines => "lines of a file: in src at most 350, else 500",
            ArchitectureRule::FunctionLines => "lines of a function from `fn` to its closing brace, at most 60",
            ArchitectureRule::ParameterCount => "parameters of a function with `self`, at most 5; a trait's implementations do not count",
            ArchitectureRule::DuplicateTypes => "files that define a visible type with this name, at most 1",
            ArchitectureRule::Cycles => "files that name each other's items, directly or through others; the edges between them",
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            ArchitectureRule::FileLines => "divide the file by meaning",
            ArchitectureRule::FunctionLines => "divide the function by meaning",
            ArchitectureRule::ParameterCount => "group what belongs together in a type",
            ArchitectureRule::DuplicateTypes => "give one of them a name of its own (or make it private)",
            ArchitectureRule::Cycles => "cut an edge: move what both need into a file beneath them",
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

pub(crate) type ListedViolations = BTreeMap<(ArchitectureRule, String), usize>;

impl Violation {
    pub(crate) fn new(rule: ArchitectureRule, key: &str, number: usize) -> Self {
        Violation { rule, key: key.to_owned(), number, locations: Vec::new() }
    }

    pub(crate) fn from_cycle(circle: &FileCycle) -> Self {
        Violation {
            locations: circle.describe_edges(),
            ..Violation::new(ArchitectureRule::Cycles, &circle.files.join(" "), circle.edges.len())
        }
    }
}

/// The entry in the format of the list.
fn render_entry(rule: ArchitectureRule, key: &str, number: usize) -> String {
    if rule != ArchitectureRule::Cycles {
        return format!("{key:?} = {number}\n");
    }
    let files: Vec<&str> = key.split(' ').collect();
    let lines: String = files.iter().map(|file| format!("    {file:?},\n")).collect();
    format!("[[circles]]\nsize = {}\nedges = {number}\nfiles = [\n{lines}]\n", files.len())
}

/// The whole list in its canonical form.
pub(crate) fn render_list(violations: &[Violation]) -> String {
    let mut text = "# Known violations of the architecture rules, checked by tests/architecture.rs: the numbers only go down.\n\
                    # The test prints each line that has to change.\n"
        .to_owned();
    for rule in ALL_RULES {
        let mut mine: Vec<&Violation> = violations.iter().filter(|violation| violation.rule == rule).collect();
        mine.sort_by(|a, b| a.key.cmp(&b.key));
        text += &format!("\n# {}\n", rule.number_meaning());
        if rule != ArchitectureRule::Cycles {
            text += &format!("[{}]\n", rule.toml_section());
        }
        text.extend(mine.iter().map(|violation| render_entry(rule, &violation.key, violation.number)));
    }
    text
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ListedCycle {
    size: usize,
    edges: usize,
    files: Vec<String>,
}

/// # Errors
/// The first part that does not fit the format.
pub(crate) fn parse_list(text: &str) -> Result<ListedViolations, String> {
    let mut listed = ListedViolations::new();
    let mut sections: BTreeMap<String, toml::Value> = toml::from_str(text).map_err(|error| error.to_string())?;
    for rule in ALL_RULES {
        let Some(section) = sections.remove(rule.toml_section()) else { continue };
        let wrong = |error: toml::de::Error| format!("{}: {error}", rule.toml_section());
        if rule == ArchitectureRule::Cycles {
            for circle in section.try_into::<Vec<ListedCycle>>().map_err(wrong)? {
                if circle.size != circle.files.len() {
                    return Err(format!("a circle of size {} has {} files: {:?}", circle.size, circle.files.len(), circle.files));
                }
                listed.insert((rule, circle.files.join(" ")), circle.edges);
            }
        } else {
            let numbers = section.try_into::<BTreeMap<String, usize>>().map_err(wrong)?;
            listed.extend(numbers.into_iter().map(|(key, number)| ((rule, key), number)));
        }
    }
    if let Some(unknown) = sections.keys().next() {
        return Err(format!("{unknown} is no rule"));
    }
    Ok(listed)
}

/// All differences, each with what to do.
pub(crate) fn compare_with_list(listed: &ListedViolations, found: &[Violation]) -> Vec<String> {
    let mut problems: Vec<String> = found.iter().filter_map(|violation| compare_violation(listed, violation)).collect();
    let gone = listed.iter().filter(|((rule, key), _)| !found.iter().any(|violation| violation.rule == *rule && violation.key == *key));
    problems.extend(gone.map(|((rule, key), number)| {
        let line = indent(&render_entry(*rule, key, *number));
        format!("{}, listed {number}: no longer a violation. Delete from the list\n{line}", message_prefix(*rule, key))
    }));
    problems
}

fn compare_violation(listed: &ListedViolations, violation: &Violation) -> Option<String> {
    let Violation { rule, key, number, locations: places } = violation;
    let before = listed.get(&(*rule, key.clone()));
    let is = message_prefix(*rule, key);
    let line = indent(&render_entry(*rule, key, *number));
    let meaning = rule.number_meaning();
    let worse = match before {
        Some(before) if before == number => return None,
        Some(before) if number < before => {
            return Some(format!("{is}: {number}, listed {before} ({meaning}): better. Put the new number into the list\n{line}"));
        }
        Some(before) => format!("listed {before} ({meaning}): worse"),
        None => format!("not listed ({meaning})"),
    };
    let others =
        if before.is_none() && *rule == ArchitectureRule::Cycles { describe_overlapping_cycles(listed, key) } else { String::new() };
    let remedy = rule.remedy();
    Some(format!(
        "{is}: {number}, {worse}.\n{}{others}  Remedy: {remedy}. Only where an exception is agreed, list\n{line}",
        indent(&places.join("\n"))
    ))
}

/// The start of a message; for a cycle only its first file, since the list shows the rest.
fn message_prefix(rule: ArchitectureRule, key: &str) -> String {
    let files = key.split(' ').count();
    match rule {
        ArchitectureRule::Cycles => format!("[circles] {} and {} more", key.split(' ').next().unwrap_or(""), files - 1),
        _ => format!("[{}] {key}", rule.toml_section()),
    }
}

/// The listed cycles that share files with a new one, and the differences.
fn describe_overlapping_cycles(listed: &ListedViolations, key: &str) -> String {
    let files: Vec<&str> = key.split(' ').collect();
    let mut text = String::new();
    for ((_, other), _) in listed.iter().filter(|((rule, _), _)| *rule == ArchitectureRule::Cycles) {
        let others: Vec<&str> = other.split(' ').collect();
        if files.iter().any(|file| others.contains(file)) {
            let came: Vec<&str> = files.iter().filter(|file| !others.contains(file)).copied().collect();
            let left: Vec<&str> = others.iter().filter(|file| !files.contains(file)).copied().collect();
            let line =
                format!("  Listed is one of {} files: new in it [{}], gone from it [{}].\n", others.len(), came.join(" "), left.join(" "));
            text.push_str(&line);
        }
    }
    text
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}
