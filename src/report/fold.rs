//! Host names folded for people: `gpu[01-16]`, with a bound on their length.
//!
//! Uses nothing.

use std::collections::BTreeMap;

/// Folds names that differ in one run of digits: `gpu01 gpu02 gpu03` is `gpu[01-03]`. Names of other shapes stay as they are.
pub fn fold(names: &[String]) -> String {
    let mut groups: Vec<(String, String, usize)> = Vec::new();
    let mut numbers: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    for name in names {
        let (prefix, digits, suffix) = split(name);
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
            _ => format!("{prefix}[{}]{suffix}", ranges(&list, *width)),
        }
    });
    texts.collect::<Vec<_>>().join(",")
}

/// Folds numbers: `0-3,7`.
pub fn numbers(list: &[u32]) -> String {
    let mut list: Vec<u64> = list.iter().map(|n| u64::from(*n)).collect();
    list.sort_unstable();
    list.dedup();
    ranges(&list, 0)
}

fn ranges(list: &[u64], width: usize) -> String {
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
fn split(name: &str) -> (&str, &str, &str) {
    let Some(end) = name.rfind(|c: char| c.is_ascii_digit()).map(|at| at + 1) else { return (name, "", "") };
    let start = name[..end].rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + name[at..].chars().next().map_or(1, char::len_utf8));
    if end - start > 18 { (name, "", "") } else { (&name[..start], &name[start..end], &name[end..]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folds_what_belongs_together() {
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
            assert_eq!(fold(&names), folded);
        }
        assert_eq!(numbers(&[3, 0, 1, 2, 7, 7]), "0-3,7");
    }
}
