//! The one grammar in which commands name ranks: `3`, `r3`, `0-3,7`, `host:gpu02`, `host:gpu[01-04]`.

use std::collections::BTreeSet;

use super::host_patterns::{select_hosts, split_commas};

/// An upper bound that no run reaches.
pub(crate) const MAX_RANKS: u32 = 1 << 16;

/// Ranks as a person names them; empty means all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RankSelection {
    ranks: BTreeSet<u32>,
    host_patterns: Vec<String>,
}

/// Ranks of a run whose hosts are known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RankFilter {
    /// Empty, with `hosts` empty as well: all.
    ranks: BTreeSet<u32>,
    /// All ranks of these hosts, by their index.
    hosts: BTreeSet<u32>,
    /// Nothing of other hosts; `None`: no restriction.
    only_hosts: Option<BTreeSet<u32>>,
}

impl RankSelection {
    /// # Errors
    /// What is wrong, with the grammar.
    pub(crate) fn parse(text: &str) -> Result<RankSelection, String> {
        let mut selection = RankSelection::default();
        for part in split_commas(text) {
            match part.split_once(':') {
                Some(("host", pattern)) if !pattern.is_empty() => selection.host_patterns.push(pattern.to_owned()),
                _ => selection
                    .ranks
                    .extend(parse_range(part).ok_or_else(|| format!("invalid ranks `{text}`: write 3, r3, 0-3,7 or host:gpu02"))?),
            }
        }
        Ok(selection)
    }

    pub(crate) fn merge(all: &[RankSelection]) -> RankSelection {
        RankSelection {
            ranks: all.iter().flat_map(|one| one.ranks.iter().copied()).collect(),
            host_patterns: all.iter().flat_map(|one| one.host_patterns.clone()).collect(),
        }
    }

    /// The ranks that are named by number.
    pub(crate) fn numbers(&self) -> &BTreeSet<u32> {
        &self.ranks
    }

    /// `only_hosts`: patterns of hosts beyond which nothing is selected; empty: no restriction.
    ///
    /// # Errors
    /// A pattern that matches none of these hosts, with the hosts.
    pub(crate) fn resolve(&self, hosts: &[String], only_hosts: &[String]) -> Result<RankFilter, String> {
        let indexes = |patterns: &[String]| -> Result<BTreeSet<u32>, String> {
            let mut found = BTreeSet::new();
            for pattern in patterns {
                let selected = select_hosts(pattern, hosts).map_err(|(problem, hint)| format!("{problem}\n    help: {hint}"))?;
                found.extend((0..).zip(selected).filter(|(_, selected)| *selected).map(|(index, _)| index));
            }
            Ok(found)
        };
        Ok(RankFilter {
            ranks: self.ranks.clone(),
            hosts: indexes(&self.host_patterns)?,
            only_hosts: if only_hosts.is_empty() { None } else { Some(indexes(only_hosts)?) },
        })
    }
}

impl RankFilter {
    fn is_all(&self) -> bool {
        self.ranks.is_empty() && self.hosts.is_empty()
    }

    pub(crate) fn selects_host(&self, host: u32) -> bool {
        self.only_hosts.as_ref().is_none_or(|hosts| hosts.contains(&host))
    }

    pub(crate) fn selects_rank(&self, host: u32, rank: u32) -> bool {
        self.selects_host(host) && (self.is_all() || self.ranks.contains(&rank) || self.hosts.contains(&host))
    }

    /// The launcher's log is no rank's.
    pub(crate) fn selects_launcher(&self, host: u32) -> bool {
        self.selects_host(host) && self.is_all()
    }
}

/// `3`, `r3`, `0-3`.
pub(crate) fn parse_range(text: &str) -> Option<std::ops::RangeInclusive<u32>> {
    let number = |rank: &str| rank.strip_prefix('r').unwrap_or(rank).parse::<u32>().ok();
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = number(first).zip(number(last))?;
    (first <= last && last < MAX_RANKS).then_some(first..=last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts() -> Vec<String> {
        ["gpu01", "gpu02", "gpu03"].map(str::to_owned).to_vec()
    }

    /// The ranks of three hosts with two ranks each.
    fn selected(text: &str, only_hosts: &[&str]) -> Result<Vec<u32>, String> {
        let only_hosts: Vec<String> = only_hosts.iter().map(|host| (*host).to_owned()).collect();
        let filter = RankSelection::parse(text)?.resolve(&hosts(), &only_hosts)?;
        Ok((0..6).filter(|rank| filter.selects_rank(rank / 2, *rank)).collect())
    }

    #[test]
    fn ranks_and_hosts_select() {
        for (text, ranks) in [
            ("3", vec![3]),
            ("r3", vec![3]),
            ("0-1,5", vec![0, 1, 5]),
            ("r0-r2", vec![0, 1, 2]),
            ("host:gpu02", vec![2, 3]),
            ("0,host:gpu[02-03]", vec![0, 2, 3, 4, 5]),
            ("host:!gpu01", vec![2, 3, 4, 5]),
        ] {
            assert_eq!(selected(text, &[]), Ok(ranks), "{text}");
        }
        assert_eq!(selected("0-5", &["gpu01", "gpu03"]), Ok(vec![0, 1, 4, 5]));
        let all = RankSelection::default().resolve(&hosts(), &[]).expect("all");
        assert!(all.selects_rank(2, 5) && all.selects_launcher(1));
        let one = RankSelection::parse("0").and_then(|one| one.resolve(&hosts(), &[])).expect("one");
        assert!(!one.selects_launcher(0));
    }

    #[test]
    fn wrong_selections_list_what_exists() {
        for wrong in ["", "x", "3-1", "-", "0-99999", "host:", "gpu02", "rank3"] {
            let error = RankSelection::parse(wrong).expect_err(wrong);
            assert!(error.contains("write 3, r3, 0-3,7 or host:gpu02"), "{error}");
        }
        let error = selected("host:gpu09", &[]).expect_err("no such host");
        assert!(error.contains("no host is named `gpu09`") && error.contains("the hosts are gpu[01-03]"), "{error}");
    }
}
