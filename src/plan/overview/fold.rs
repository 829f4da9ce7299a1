//! Argument vectors of several hosts as one, where they differ only in the host's name, address or node rank.

use super::inputs::PlanOverview;
use crate::text::hostlist::fold_numbers;

const ADDRESS: &str = "<its address>";

/// One host's words.
#[derive(Debug, Clone)]
pub(super) struct HostWords {
    pub(super) host: String,
    /// What other ranks reach it by.
    pub(super) address: String,
    pub(super) node_rank: u32,
    pub(super) words: Vec<String>,
}

impl HostWords {
    pub(super) fn of_host(overview: &PlanOverview<'_>, host: usize, words: Vec<String>) -> HostWords {
        // A script of several lines ends with a line break that says nothing.
        let words = words.into_iter().map(|word| word.trim_end_matches('\n').to_owned()).collect();
        HostWords {
            host: overview.hosts.get(host).map_or_else(String::new, |host| host.name.clone()),
            address: overview
                .plan
                .run_record
                .as_ref()
                .and_then(|record| record.hosts.get(host))
                .map_or_else(String::new, |host| host.fabric_address.clone()),
            node_rank: u32::try_from(host).unwrap_or(u32::MAX),
            words,
        }
    }
}

/// Hosts with the same words.
#[derive(Debug)]
pub(super) struct WordGroup {
    pub(super) hosts: Vec<String>,
    /// `<host>`, `<its address>` and `<0-1>` are placeholders for what differs.
    pub(super) words: Vec<String>,
}

/// How a word differs between the hosts of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WordKind {
    Equal,
    HostName,
    Address,
    /// The node rank ends the word.
    NodeRank,
}

/// The groups in the order of their first hosts.
pub(super) fn fold_words(all: &[HostWords]) -> Vec<WordGroup> {
    let mut groups: Vec<(Vec<&HostWords>, Vec<WordKind>)> = Vec::new();
    for own in all {
        let joined = groups.iter_mut().any(|(members, kinds)| {
            let Some(found) = compare(members[0], own).filter(|found| members.len() == 1 || found == kinds) else { return false };
            members.push(own);
            *kinds = found;
            true
        });
        if !joined {
            groups.push((vec![own], vec![WordKind::Equal; own.words.len()]));
        }
    }
    groups.into_iter().map(|(members, kinds)| merge(&members, &kinds)).collect()
}

/// How each word of `b` differs from that of `a`; `None`: they cannot be one command.
fn compare(a: &HostWords, b: &HostWords) -> Option<Vec<WordKind>> {
    if a.words.len() != b.words.len() {
        return None;
    }
    a.words.iter().zip(&b.words).map(|(x, y)| compare_word((a, x), (b, y))).collect()
}

fn compare_word((a, x): (&HostWords, &str), (b, y): (&HostWords, &str)) -> Option<WordKind> {
    let rank_prefix = |word: &str, rank: u32| {
        let prefix = word.strip_suffix(&rank.to_string())?.to_owned();
        (!prefix.ends_with(|c: char| c.is_ascii_digit())).then_some(prefix)
    };
    if x == y {
        return Some(WordKind::Equal);
    }
    if x.contains(&a.host) && x.replace(&a.host, "<host>") == y.replace(&b.host, "<host>") {
        return Some(WordKind::HostName);
    }
    if !a.address.is_empty() && x.contains(&a.address) && x.replace(&a.address, ADDRESS) == y.replace(&b.address, ADDRESS) {
        return Some(WordKind::Address);
    }
    let (of_a, of_b) = (rank_prefix(x, a.node_rank)?, rank_prefix(y, b.node_rank)?);
    (of_a == of_b).then_some(WordKind::NodeRank)
}

fn merge(members: &[&HostWords], kinds: &[WordKind]) -> WordGroup {
    let ranks: Vec<u32> = members.iter().map(|own| own.node_rank).collect();
    let first = members[0];
    let word = |(word, kind): (&String, &WordKind)| match kind {
        WordKind::Equal => word.clone(),
        WordKind::HostName => word.replace(&first.host, "<host>"),
        WordKind::Address => word.replace(&first.address, ADDRESS),
        WordKind::NodeRank => {
            let prefix = word.strip_suffix(&first.node_rank.to_string()).unwrap_or(word);
            format!("{prefix}<{}>", fold_numbers(&ranks))
        }
    };
    WordGroup { hosts: members.iter().map(|own| own.host.clone()).collect(), words: first.words.iter().zip(kinds).map(word).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(lines: &[&str]) -> Vec<(String, String)> {
        let words = |(rank, line): (u32, &&str)| HostWords {
            host: format!("gpu0{}", rank + 1),
            address: format!("10.0.0.{}", rank + 1),
            node_rank: rank,
            words: line.split(' ').map(str::to_owned).collect(),
        };
        let all: Vec<HostWords> = (0..).zip(lines).map(words).collect();
        fold_words(&all).into_iter().map(|group| (group.hosts.join("+"), group.words.join(" "))).collect()
    }

    #[test]
    fn only_host_names_and_node_ranks_are_folded() {
        let one = |lines: &[&str], expected: &str| {
            let found = folded(lines);
            assert!(found.len() == 1 && found[0].1 == expected, "{found:?}");
        };
        one(&["run --rank=0 a", "run --rank=1 a", "run --rank=2 a"], "run --rank=<0-2> a");
        one(&["--name=n-gpu01 x", "--name=n-gpu02 x"], "--name=n-<host> x");
        one(&["run --addr=10.0.0.1", "run --addr=10.0.0.2"], "run --addr=<its address>");
        one(&["run --nproc=1 --rank=0", "run --nproc=1 --rank=1"], "run --nproc=1 --rank=<0-1>");
        assert_eq!(
            folded(&["run --nproc=4", "run --nproc=3", "run --nproc=4"]),
            [("gpu01+gpu03".to_owned(), "run --nproc=4".to_owned()), ("gpu02".to_owned(), "run --nproc=3".to_owned())]
        );
        // 10 and 1 are no node ranks 0 and 1 behind a common prefix.
        assert_eq!(folded(&["--n=10", "--n=11"]).len(), 2);
        assert_eq!(folded(&["--a=0", "--b=1"]).len(), 2, "other flags");
        // A third host whose word is the first one's is no node rank.
        assert_eq!(folded(&["--rank=0", "--rank=1", "--rank=0"]).len(), 2);
    }
}
