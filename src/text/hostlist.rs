//! Host names folded for people: `gpu[01-16]`, with a bound on their length.
//!
//! Uses nothing.

use std::collections::BTreeMap;

/// Folds names that differ in one run of digits: `gpu01 gpu02 gpu03` is `gpu[01-03]`. Names of other shapes stay as they are.
pub fn fold_names(names: &[String]) -> String {
    let mut groups: Vec<(String, String, usize)> = Vec::new();
    let mut numbers: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    for name in names {
        let (prefix, digits, suffix) = split_digits(name);
        let key = (prefix.to_owned(), suffix.to_owned(), digits.len());
        let at = groups.iter().position(|group| *group == key).unwrap_or_else(|| {
            groups.push(key);
            groups.len() - 1
        });
        numbers.entry(at).or_default().extend(digits.parse::<u64>().ok());
    }
    let texts = groups.iter().enumerate().map(|(at, (prefix, suffix, width))| {
        let mut list = numbers.remove(&at).unwrap_or_default();
        list.sort_unstable();
        list.dedup();
        match &list[..] {
            [] => prefix.clone(),
            [one] => format!("{prefix}{one:0width$}{suffix}"),
            _ => format!("{prefix}[{}]{suffix}", format_ranges(&list, *width)),
        }
    });
    texts.collect::<Vec<_>>().join(",")
}

/// Folds numbers: `0-3,7`.
pub fn fold_numbers(list: &[u32]) -> String {
    let mut list: Vec<u64> = list.iter().map(|n| u64::from(*n)).collect();
    list.sort_unstable();
    list.dedup();
    format_ranges(&list, 0)
}

/// One trouble of one host or of many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupedError {
    /// The hosts' names.
    pub hosts: Vec<String>,
    /// What is wrong.
    pub error: String,
    /// What to do next; may be empty.
    pub hint: String,
}

impl GroupedError {
    /// Lines for a person: the trouble once, under it who has it where that is more than one, and the hint.
    pub fn lines(&self) -> Vec<String> {
        let (who, names) = host_summary(&self.hosts);
        let mut lines = vec![format!("{who}: {}", self.error)];
        lines.extend(names.map(|names| format!("  {names}")));
        lines.extend((!self.hint.is_empty()).then(|| format!("  help: {}", self.hint)));
        lines
    }
}

/// Who a sentence is about: `gpu01`, or `12 hosts` with their folded names for the next line.
pub fn host_summary(hosts: &[String]) -> (String, Option<String>) {
    match hosts {
        [one] => (one.clone(), None),
        _ => (format!("{} hosts", hosts.len()), Some(fold_names(hosts))),
    }
}

/// Puts equal troubles (host, what, hint) of many hosts together, in the order of their first host.
pub fn group_errors(troubles: impl IntoIterator<Item = (String, String, String)>) -> Vec<GroupedError> {
    let mut sorts: Vec<GroupedError> = Vec::new();
    for (host, what, hint) in troubles {
        match sorts.iter_mut().find(|sort| sort.error == what && sort.hint == hint) {
            Some(sort) => sort.hosts.push(host),
            None => sorts.push(GroupedError { hosts: vec![host], error: what, hint }),
        }
    }
    sorts
}

fn format_ranges(list: &[u64], width: usize) -> String {
    let mut parts: Vec<(u64, u64)> = Vec::new();
    for n in list {
        match parts.last_mut() {
            Some((_, end)) if *end + 1 == *n => *end = *n,
            _ => parts.push((*n, *n)),
        }
    }
    let text = |(from, to): &(u64, u64)| if from == to { format!("{from:0width$}") } else { format!("{from:0width$}-{to:0width$}") };
    parts.iter().map(text).collect::<Vec<_>>().join(",")
}

/// The last run of digits; a run too long for a number counts as none.
fn split_digits(name: &str) -> (&str, &str, &str) {
    let Some(end) = name.rfind(|c: char| c.is_ascii_digit()).map(|at| at + 1) else { return (name, "", "") };
    let start = name[..end].rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + name[at..].chars().next().map_or(1, char::len_utf8));
    if end - start > 18 { (name, "", "") } else { (&name[..start], &name[start..end], &name[end..]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_fold_into_ranges() {
        for (names, folded) in [
            ("", ""),
            ("gpu01", "gpu01"),
            ("gpu01 gpu02 gpu03 gpu16", "gpu[01-03,16]"),
            ("gpu9 gpu10 a b", "gpu9,gpu10,a,b"),
            ("n1.x n2.x 中3", "n[1-2].x,中3"),
            ("10.0.0.7 10.0.0.8", "10.0.0.[7-8]"),
            ("m x99999999999999999999", "m,x99999999999999999999"),
        ] {
            let names: Vec<String> = names.split_whitespace().map(str::to_owned).collect();
            assert_eq!(fold_names(&names), folded);
        }
        assert_eq!(fold_numbers(&[3, 0, 1, 2, 7, 7]), "0-3,7");
    }

    #[test]
    fn equal_errors_of_hosts_are_grouped() {
        let refused =
            |n: u32| (format!("gpu{n:02}"), "key refused (tried ~/.ssh/id_ed25519, agent 3 keys)".to_owned(), "ssh-copy-id".to_owned());
        let away = ("gpu07".to_owned(), "no answer".to_owned(), String::new());
        let lines: Vec<String> =
            group_errors((1..7).map(refused).chain([away]).chain((8..14).map(refused))).iter().flat_map(GroupedError::lines).collect();
        let expected = [
            "12 hosts: key refused (tried ~/.ssh/id_ed25519, agent 3 keys)",
            "  gpu[01-06,08-13]",
            "  help: ssh-copy-id",
            "gpu07: no answer",
        ];
        assert_eq!(lines, expected);
    }
}
