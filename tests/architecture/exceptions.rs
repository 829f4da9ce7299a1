//! The list of today's violations with their numbers, and how it is held: worse, better, new and gone all fail, so that the list shows
//! each change.

use std::collections::BTreeMap;

use crate::circles::Circle;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    Counts,
    Files,
    Functions,
    Parameters,
    Types,
    Circles,
}

pub(crate) const RULES: [Rule; 6] = [Rule::Counts, Rule::Files, Rule::Functions, Rule::Parameters, Rule::Types, Rule::Circles];

impl Rule {
    fn section(self) -> &'static str {
        match self {
            Rule::Counts => "counts",
            Rule::Files => "files",
            Rule::Functions => "functions",
            Rule::Parameters => "parameters",
            Rule::Types => "types",
            Rule::Circles => "circles",
        }
    }

    /// What the number is.
    fn meaning(self) -> &'static str {
        match self {
            Rule::Counts => "how many there are",
            Rule::Files => "lines of a file, at most 500",
            Rule::Functions => "lines of a function from `fn` to its closing brace, at most 60",
            Rule::Parameters => "parameters of a function with `self`, at most 5; a trait's implementations do not count",
            Rule::Types => "files that define a type of this name which other files can name, at most 1",
            Rule::Circles => "files that name each other's items, directly or through others; the edges between them",
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Rule::Counts => "divide a file by meaning",
            Rule::Files => "divide the file by meaning",
            Rule::Functions => "divide the function by meaning",
            Rule::Parameters => "group what belongs together in a type",
            Rule::Types => "give one of them a name of its own (or make it private)",
            Rule::Circles => "cut an edge: move what both need into a file beneath them",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) rule: Rule,
    /// A place or a name; the files of a circle, divided by spaces.
    pub(crate) key: String,
    pub(crate) number: usize,
    /// Where to look.
    pub(crate) places: Vec<String>,
}

pub(crate) type Listed = BTreeMap<(Rule, String), usize>;

impl Violation {
    pub(crate) fn new(rule: Rule, key: &str, number: usize) -> Self {
        Violation { rule, key: key.to_owned(), number, places: Vec::new() }
    }

    pub(crate) fn circle(circle: &Circle) -> Self {
        Violation { places: circle.edge_lines(), ..Violation::new(Rule::Circles, &circle.files.join(" "), circle.edges.len()) }
    }
}

/// As it stands in the list.
fn entry(rule: Rule, key: &str, number: usize) -> String {
    if rule != Rule::Circles {
        return format!("{key:?} = {number}\n");
    }
    let files: Vec<&str> = key.split(' ').collect();
    let lines: String = files.iter().map(|file| format!("    {file:?},\n")).collect();
    format!("[[circles]]\nsize = {}\nedges = {number}\nfiles = [\n{lines}]\n", files.len())
}

/// The whole list: one text for one state of the code.
pub(crate) fn render(violations: &[Violation]) -> String {
    let mut text = "# What the house does not keep yet, held by tests/architecture.rs: the numbers only go down.\n\
                    # The test prints each line that has to change.\n"
        .to_owned();
    for rule in RULES {
        let mut mine: Vec<&Violation> = violations.iter().filter(|violation| violation.rule == rule).collect();
        mine.sort_by(|a, b| a.key.cmp(&b.key));
        text += &format!("\n# {}\n", rule.meaning());
        if rule != Rule::Circles {
            text += &format!("[{}]\n", rule.section());
        }
        text.extend(mine.iter().map(|violation| entry(rule, &violation.key, violation.number)));
    }
    text
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ListedCircle {
    size: usize,
    edges: usize,
    files: Vec<String>,
}

/// # Errors
/// What of the text is no such list.
pub(crate) fn parse(text: &str) -> Result<Listed, String> {
    let mut listed = Listed::new();
    let mut sections: BTreeMap<String, toml::Value> = toml::from_str(text).map_err(|error| error.to_string())?;
    for rule in RULES {
        let Some(section) = sections.remove(rule.section()) else { continue };
        let wrong = |error: toml::de::Error| format!("{}: {error}", rule.section());
        if rule == Rule::Circles {
            for circle in section.try_into::<Vec<ListedCircle>>().map_err(wrong)? {
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

/// What differs, each with what to do.
pub(crate) fn compare(listed: &Listed, found: &[Violation]) -> Vec<String> {
    let mut problems: Vec<String> = found.iter().filter_map(|violation| judge(listed, violation)).collect();
    let gone = listed.iter().filter(|((rule, key), _)| !found.iter().any(|violation| violation.rule == *rule && violation.key == *key));
    problems.extend(gone.map(|((rule, key), number)| {
        let line = indented(&entry(*rule, key, *number));
        format!("{}, listed {number}: no longer a violation. Delete from the list\n{line}", place(*rule, key))
    }));
    problems
}

fn judge(listed: &Listed, violation: &Violation) -> Option<String> {
    let Violation { rule, key, number, places } = violation;
    let before = listed.get(&(*rule, key.clone()));
    let is = place(*rule, key);
    let line = indented(&entry(*rule, key, *number));
    let meaning = rule.meaning();
    let worse = match before {
        Some(before) if before == number => return None,
        Some(before) if number < before => {
            return Some(format!("{is}: {number}, listed {before} ({meaning}): better. Put the new number into the list\n{line}"));
        }
        Some(before) => format!("listed {before} ({meaning}): worse"),
        None => format!("not listed ({meaning})"),
    };
    let others = if before.is_none() && *rule == Rule::Circles { other_circles(listed, key) } else { String::new() };
    let remedy = rule.remedy();
    Some(format!(
        "{is}: {number}, {worse}.\n{}{others}  Remedy: {remedy}. Only where an exception is agreed, list\n{line}",
        indented(&places.join("\n"))
    ))
}

/// What a message begins with; of a circle only its beginning, since the list shows the rest.
fn place(rule: Rule, key: &str) -> String {
    let files = key.split(' ').count();
    match rule {
        Rule::Circles => format!("[circles] {} and {} more", key.split(' ').next().unwrap_or(""), files - 1),
        _ => format!("[{}] {key}", rule.section()),
    }
}

/// The listed circles that a new one shares files with, and the difference.
fn other_circles(listed: &Listed, key: &str) -> String {
    let files: Vec<&str> = key.split(' ').collect();
    let mut text = String::new();
    for ((_, other), _) in listed.iter().filter(|((rule, _), _)| *rule == Rule::Circles) {
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

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}
