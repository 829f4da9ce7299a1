//! The target of `shell`: a host, or the host of a rank.

use crate::plan::facts::HostFacts;
use crate::remote::RemoteError;
use crate::text::rank_selection::RankSelection;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum ShellTarget {
    Host(String),
    Rank(u32),
}

/// Accepts a host name, `host:gpu02`, or a rank: `3`, `r3`, `rank:3`. A host name wins.
pub(super) fn parse_target(target: &str, names: &[String]) -> Result<ShellTarget, String> {
    for name in [Some(target), target.strip_prefix("host:")].into_iter().flatten() {
        if names.iter().any(|known| known == name) {
            return Ok(ShellTarget::Host(name.to_owned()));
        }
    }
    let number = ["rank:", "rank-", "rank", "r"].iter().find_map(|prefix| target.strip_prefix(prefix)).unwrap_or(target);
    if let Ok(rank) = number.parse() {
        return Ok(ShellTarget::Rank(rank));
    }
    if RankSelection::parse(target).is_ok_and(|selection| selection.numbers().len() > 1) {
        return Err(format!("`{target}`: `shell` opens on one rank\n    help: write 3 or r3; `exec` runs a command on several hosts"));
    }
    let hosts = names.iter().take(8).cloned().collect::<Vec<_>>().join(", ");
    let more = if names.len() > 8 { ", …" } else { "" };
    Err(format!("`{target}` is neither a host of this inventory nor a rank\n    help: the hosts are {hosts}{more}"))
}

/// The host where the rank runs or ran last, else the host that the run record names.
pub(super) fn find_rank_host<'a>(
    rank: u32,
    names: &[String],
    answers: &'a [Result<HostFacts, RemoteError>],
) -> Option<(usize, &'a HostFacts)> {
    let reached = || answers.iter().enumerate().filter_map(|(host, answer)| answer.as_ref().ok().map(|facts| (host, facts)));
    let started = reached().flat_map(|(host, facts)| {
        let matches = facts.ranks.iter().filter(move |(number, ..)| *number == rank);
        matches.map(move |(_, restart, exit)| ((exit.is_none(), *restart), host, facts))
    });
    if let Some((_, host, facts)) = started.max_by_key(|(order, ..)| *order) {
        return Some((host, facts));
    }
    let record = reached().find_map(|(_, facts)| facts.run_record())?;
    let info = record.ranks.iter().find(|info| info.rank == rank)?;
    let name = &record.hosts.get(info.host as usize)?.name;
    reached().find(|(host, _)| names.get(*host) == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_name_wins_over_rank() {
        let names = ["gpu01".to_owned(), "7".to_owned(), "r2".to_owned()];
        let parse = |target: &str| parse_target(target, &names);
        assert_eq!(parse("7"), Ok(ShellTarget::Host("7".to_owned())));
        assert_eq!(parse("r2"), Ok(ShellTarget::Host("r2".to_owned())));
        for target in ["3", "r3", "rank3", "rank-3", "rank:3"] {
            assert_eq!(parse(target), Ok(ShellTarget::Rank(3)), "{target}");
        }
        assert_eq!(parse("host:gpu01"), Ok(ShellTarget::Host("gpu01".to_owned())));
        assert!(parse("0-3").expect_err("several").contains("opens on one rank"));
        assert!(parse("gpu1").expect_err("unknown").contains("gpu01, 7, r2"));
    }
}
