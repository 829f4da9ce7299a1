//! What a run says of itself on every host (`run.json`): enough for any laptop to attach to it, to know its ranks and to take it down.
//!
//! No secrets are in it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::inventory::{is_valid_address, is_valid_host_name, is_valid_inventory_name, is_valid_jump_host, is_valid_run_id, is_valid_user};
use crate::model::rank::RankInfo;

/// A host of the run at its launch; hosts that were removed from the inventory since are still found here.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RunRecordHost {
    /// Its name in the inventory.
    pub name: String,
    /// Where ssh connected; `None`: what ssh_config says for the name.
    pub address: Option<String>,
    pub user: Option<String>,
    pub port: Option<u16>,
    pub jump: Option<Vec<String>>,
    /// Whether docker went through sudo.
    pub sudo: bool,
    /// The address that ranks use.
    #[serde(rename = "fabric")]
    pub fabric_address: String,
}

/// `run.json`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RunRecord {
    #[serde(rename = "run")]
    pub run_id: String,
    pub name: String,
    /// `user@laptop` that launched it.
    pub owner: String,
    /// When, RFC 3339.
    #[serde(rename = "started")]
    pub started_at: String,
    pub hosts: Vec<RunRecordHost>,
    /// Every rank as planned; empty where the rendezvous hands ranks out.
    pub ranks: Vec<RankInfo>,
    /// How many worker processes the gang has.
    pub world_size: u32,
    /// Whether the ranks run in containers.
    #[serde(rename = "contained")]
    pub in_container: bool,
    /// Whether something voids the boundary between its ranks and their host (a mount, a privilege): then this record counts only for the host
    /// that stores it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[serde(rename = "exposed")]
    pub boundary_voided: bool,
    /// Whether it has no ranks: only the tasks of `prepare`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tasks_only: bool,
    /// The names of its tasks that run a script, by number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tasks: BTreeMap<u32, String>,
    /// The names of its tasks that send files, by number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub file_tasks: BTreeMap<u32, String>,
    /// What the tasks are, one `key value` a line; not compared when a rerun decides whether the run is equal.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tasks_text: String,
    /// Whether its launchers restart workers or continue with fewer hosts: then a dead worker alone is no failure.
    #[serde(default)]
    #[serde(rename = "restarts")]
    pub tolerates_rank_loss: bool,
    /// How many of the hosts the gang needs: fewer than all where it is elastic; 0 in a run of a version that did not record it.
    #[serde(default)]
    #[serde(rename = "least")]
    pub min_hosts: usize,
    /// The longest that a log can be on a host, bytes; 0 in a run of a version that had no such bound.
    #[serde(default)]
    #[serde(rename = "log_max")]
    pub max_log_bytes: u64,
    /// Whether the gang is stopped when it seems to hang.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stop_hung: bool,
    /// The longest healthy silence, milliseconds, where the inventory says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "hang_after")]
    pub hang_after_ms: Option<u64>,
    /// The regex that marks the run as training.
    pub ready_when: Option<String>,
    /// From TERM to KILL, seconds.
    #[serde(rename = "stop_grace")]
    pub stop_grace_secs: u64,
    /// `always`, `on-success` or `never`.
    pub teardown: String,
    /// The canonical text of the container half on this host, what "equal" is decided by.
    pub container_text: String,
    /// The canonical text of the launch half on this host.
    pub launch_text: String,
}

/// The longest texts and lists that a record may hold: more than any inventory gives, less than what would exhaust a laptop.
const MAX_TEXT_BYTES: usize = 64 << 10;
const MAX_HOSTS: usize = 4096;
const MAX_RANKS: usize = 65536;

impl RunRecord {
    /// Reads the record of the current run as the host sent it. It passes the grammar of an inventory: what a host says may become
    /// the address of a connection or a word of a command.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str, run: &str) -> Result<RunRecord, String> {
        let record: RunRecord = serde_json::from_str(text).map_err(|error| error.to_string())?;
        record.validate(run).map(|()| record)
    }

    fn validate(&self, run: &str) -> Result<(), String> {
        let no = |what: &str| Err(format!("{what} in the run's record is invalid"));
        if self.run_id != run || !is_valid_run_id(&self.run_id) {
            return no("the run's id");
        }
        if !is_valid_inventory_name(&self.name) {
            return no("the name");
        }
        if self.hosts.len() > MAX_HOSTS || self.ranks.len() > MAX_RANKS {
            return no("the number of hosts or ranks");
        }
        for host in &self.hosts {
            let whole = is_valid_host_name(&host.name)
                && host.address.as_deref().is_none_or(is_valid_address)
                && (host.fabric_address.is_empty() || is_valid_address(&host.fabric_address))
                && host.user.as_deref().is_none_or(is_valid_user)
                && host.jump.iter().flatten().all(|jump| is_valid_jump_host(jump))
                && host.jump.iter().flatten().count() <= 16;
            if !whole {
                return no("a host");
            }
        }
        let mut names: Vec<&str> = self.hosts.iter().map(|host| host.name.as_str()).collect();
        names.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return no("a host's name");
        }
        if self.ranks.iter().any(|rank| usize::try_from(rank.host).is_ok_and(|host| host >= self.hosts.len())) {
            return no("a rank's host");
        }
        let texts =
            [Some(&self.owner), Some(&self.started_at), self.ready_when.as_ref(), Some(&self.container_text), Some(&self.launch_text)];
        if texts.iter().flatten().any(|text| text.len() > MAX_TEXT_BYTES)
            || !["always", "on-success", "never"].contains(&self.teardown.as_str())
        {
            return no("a text");
        }
        Ok(())
    }
}

/// The first 16 hex digits of the SHA-256 of `text`.
pub(crate) fn short_hash(text: &str) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(text.as_bytes()).iter().take(8).map(|b| format!("{b:02x}")).collect()
}

/// The lines in which two canonical texts (`key value`, see `inventory/fingerprint`) differ, as `key: old → new`.
pub(crate) fn diff_config_texts(old: &str, new: &str) -> Vec<String> {
    let key = |line: &str| line.split_once(' ').map_or(line, |(k, _)| k).to_owned();
    let value = |line: &str| line.split_once(' ').map_or("", |(_, v)| v).to_owned();
    let mut found = Vec::new();
    for line in old.lines().filter(|l| !new.lines().any(|n| n == *l)) {
        let k = key(line);
        match new.lines().find(|n| key(n) == k && !old.lines().any(|o| o == *n)) {
            Some(other) => found.push(format!("{k}: {} → {}", value(line), value(other))),
            None => found.push(format!("{k}: {} → nothing", value(line))),
        }
    }
    for line in new.lines().filter(|l| !old.lines().any(|o| o == *l)) {
        let k = key(line);
        if !old.lines().any(|o| key(o) == k && !new.lines().any(|n| n == o)) {
            found.push(format!("{k}: nothing → {}", value(line)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST_RUN_ID: &str = "20261122-101500-ab12";

    type RecordEdit = fn(&mut RunRecord, String);

    fn sample_record() -> RunRecord {
        let host = |name: &str| RunRecordHost {
            name: name.to_owned(),
            address: Some("10.0.0.1".to_owned()),
            user: Some("root".to_owned()),
            jump: Some(vec!["li@bastion:2222".to_owned()]),
            fabric_address: "fd00::1".to_owned(),
            ..RunRecordHost::default()
        };
        RunRecord {
            run_id: TEST_RUN_ID.to_owned(),
            name: "wan22".to_owned(),
            hosts: vec![host("gpu01"), host("gpu02")],
            ranks: vec![RankInfo { rank: 0, host: 1, local_rank: 0 }],
            teardown: "always".to_owned(),
            ..RunRecord::default()
        }
    }

    fn parse_again(record: &RunRecord) -> Result<RunRecord, String> {
        RunRecord::parse(&serde_json::to_string(record).expect("JSON"), TEST_RUN_ID)
    }

    #[test]
    fn run_record_survives_a_round_trip() {
        assert_eq!(parse_again(&sample_record()), Ok(sample_record()));
    }

    /// What a record says becomes paths, addresses and words of commands.
    #[test]
    fn run_record_is_validated_by_inventory_grammar() {
        let wicked =
            ["../../victim", "x; touch X", "$(id)", "`id`", "a b", "-oProxyCommand=x", "", "a\nb", "a\u{1b}[2J", "x|y", "~", "a/b"];
        for text in wicked {
            let changes: [(&str, RecordEdit); 7] = [
                ("run", |record, text| record.run_id = text),
                ("name", |record, text| record.name = text),
                ("host", |record, text| record.hosts[1].name = text),
                ("address", |record, text| record.hosts[0].address = Some(text)),
                ("user", |record, text| record.hosts[0].user = Some(text)),
                ("jump", |record, text| record.hosts[0].jump = Some(vec![text])),
                ("teardown", |record, text| record.teardown = text),
            ];
            for (what, change) in changes {
                let mut changed = sample_record();
                change(&mut changed, text.to_owned());
                assert!(parse_again(&changed).is_err(), "{what}: {text:?}");
            }
        }
        let mut twice = sample_record();
        twice.hosts[1].name = "gpu01".to_owned();
        let mut beyond = sample_record();
        beyond.ranks[0].host = 2;
        let mut fabric = sample_record();
        fabric.hosts[0].fabric_address = "a;b".to_owned();
        for changed in [twice, beyond, fabric] {
            assert!(parse_again(&changed).is_err(), "{changed:?}");
        }
        assert!(RunRecord::parse("{}", TEST_RUN_ID).is_err() && RunRecord::parse("not JSON", TEST_RUN_ID).is_err());
        assert!(
            RunRecord::parse(&serde_json::to_string(&sample_record()).expect("JSON"), "20261122-101500-ffff").is_err(),
            "another run's"
        );
    }
}
