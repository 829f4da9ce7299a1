//! Host names folded for people: `gpu[01-16]`, with a bound on their length.

/// A longer number is not folded.
const MAX_FOLDED_DIGITS: usize = 15;

/// The text before and after a name's last number, and the number's length.
type NameShape<'a> = (&'a str, &'a str, usize);

/// Folds names that differ in one run of digits: `gpu01 gpu02 gpu03` is `gpu[01-03]`. Names of other shapes stay as they are.
pub(crate) fn fold_names(names: &[String]) -> String {
    let mut groups: Vec<(NameShape<'_>, Vec<&str>)> = Vec::new();
    for name in names {
        let (prefix, digits, suffix) = split_last_number(name).unwrap_or((name, "", ""));
        let key = (prefix, suffix, digits.len());
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, numbers)) => numbers.push(digits),
            None => groups.push((key, vec![digits])),
        }
    }
    let texts = groups.iter_mut().map(|((prefix, suffix, _), numbers)| {
        // Numbers of one length sort as texts do.
        numbers.sort_unstable();
        numbers.dedup();
        match &numbers[..] {
            [one] => format!("{prefix}{one}{suffix}"),
            many => format!("{prefix}[{}]{suffix}", format_ranges(many)),
        }
    });
    texts.collect::<Vec<_>>().join(",")
}

/// Folds numbers: `0-3,7`.
pub(crate) fn fold_numbers(list: &[u32]) -> String {
    let mut sorted = list.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let ranges = sorted.chunk_by(|number, next| number.checked_add(1) == Some(*next));
    let texts = ranges.map(|range| match range {
        [first, .., last] => format!("{first}-{last}"),
        one => one.iter().map(u32::to_string).collect(),
    });
    texts.collect::<Vec<_>>().join(",")
}

/// `r3`, `r[0-7,9]`; empty without ranks.
pub(crate) fn short_ranks(ranks: &[u32]) -> String {
    match ranks {
        [] => String::new(),
        [one] => format!("r{one}"),
        many => format!("r[{}]", fold_numbers(many)),
    }
}

/// Names with what they have in common, in the order of their first name.
fn group_equal<T: PartialEq>(items: impl IntoIterator<Item = (String, T)>) -> Vec<(T, Vec<String>)> {
    let mut groups: Vec<(T, Vec<String>)> = Vec::new();
    for (name, item) in items {
        match groups.iter_mut().find(|(known, _)| *known == item) {
            Some((_, names)) => names.push(name),
            None => groups.push((item, vec![name])),
        }
    }
    groups
}

/// Lines for a person of errors (host, what, hint): each error once, below it the hosts if there are several, and the hint if there is one.
pub(crate) fn error_lines(errors: impl IntoIterator<Item = (String, String, String)>) -> Vec<Vec<String>> {
    let groups = group_equal(errors.into_iter().map(|(host, what, hint)| (host, (what, hint))));
    let lines = groups.into_iter().map(|((what, hint), hosts)| {
        let mut lines = match hosts.as_slice() {
            [one] => vec![format!("{one}: {what}")],
            many => vec![format!("{} hosts: {what}", many.len()), format!("  {}", fold_names(many))],
        };
        lines.extend((!hint.is_empty()).then(|| format!("  help: {hint}")));
        lines
    });
    lines.collect()
}

/// `01 02 03 07` as `01-03,07`; the numbers are texts of digits, in their order.
pub(super) fn format_ranges(numbers: &[&str]) -> String {
    let mut ranges: Vec<(&str, &str)> = Vec::new();
    for digits in numbers {
        match ranges.last_mut() {
            Some((from, to)) if continues_range(from, to, digits) => *to = digits,
            _ => ranges.push((digits, digits)),
        }
    }
    let texts = ranges.into_iter().map(|(from, to)| if from == to { from.to_owned() } else { format!("{from}-{to}") });
    texts.collect::<Vec<_>>().join(",")
}

/// Whether `next` continues the range from `from` to `to`, with the same digits.
fn continues_range(from: &str, to: &str, next: &str) -> bool {
    let width = if from.starts_with('0') { from.len() } else { 0 };
    let following = to.parse::<u64>().ok().and_then(|to| to.checked_add(1));
    let has_digits = |number: u64| next.len() == width.max(number.ilog10() as usize + 1);
    following.is_some_and(|number| next.parse::<u64>() == Ok(number) && has_digits(number))
}

/// A name around its last number; a number that is too long counts as none.
pub(super) fn split_last_number(name: &str) -> Option<(&str, &str, &str)> {
    let end = name.rfind(|c: char| c.is_ascii_digit())? + 1;
    let prefix = name[..end].trim_end_matches(|c: char| c.is_ascii_digit());
    (end - prefix.len() <= MAX_FOLDED_DIGITS).then(|| (prefix, &name[prefix.len()..end], &name[end..]))
}

/// Groups hosts with equal answers as `(folded names, answer)`, ordered by each group's first host.
pub(crate) fn fold_equal_answers(answers: &[(String, String)]) -> Vec<(String, String)> {
    let groups = group_equal(answers.iter().map(|(name, answer)| (name.clone(), answer)));
    groups.into_iter().map(|(answer, names)| (fold_names(&names), answer.clone())).collect()
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
        let lines = error_lines((1..7).map(refused).chain([away]).chain((8..14).map(refused))).concat();
        let expected = [
            "12 hosts: key refused (tried ~/.ssh/id_ed25519, agent 3 keys)",
            "  gpu[01-06,08-13]",
            "  help: ssh-copy-id",
            "gpu07: no answer",
        ];
        assert_eq!(lines, expected);
    }
}
