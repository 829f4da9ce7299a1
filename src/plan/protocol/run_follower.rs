//! The user who follows a run from a laptop, as recorded by its log stream on a host (`assets/follow.sh`) and reported by the facts.

/// A follower that was silent for longer does not count: its laptop sleeps or is gone.
const MAX_SILENT_SECS: u64 = 30;
/// The longest name that is believed.
const MAX_OWNER_BYTES: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFollower {
    /// `user@laptop`; `somebody` where the record does not say.
    pub owner: String,
    /// The laptop's id and the process there.
    process: Option<(String, u32)>,
    /// Seconds since its last sign of life.
    pub silent_secs: u64,
}

impl RunFollower {
    /// The record as it is stored on a host.
    pub(crate) fn format(owner: &str, laptop_id: &str, pid: u32) -> String {
        let owner: String = owner.chars().map(|c| if is_name_byte(c) { c } else { '_' }).take(MAX_OWNER_BYTES).collect();
        format!("{owner} {laptop_id} {pid}")
    }

    /// Reads `<seconds> <user@laptop> <laptop id> <pid>`. On a bare host a rank may have written it.
    pub(crate) fn parse(value: &str) -> Option<RunFollower> {
        let mut words = value.split(' ');
        let silent_secs = words.next()?.parse().ok()?;
        let is_name = |text: &&str| !text.is_empty() && text.len() <= MAX_OWNER_BYTES && text.chars().all(is_name_byte);
        let owner = words.next().filter(is_name).unwrap_or("somebody").to_owned();
        let laptop = words.next().filter(is_name).map(str::to_owned);
        let process = laptop.zip(words.next().and_then(|pid| pid.parse().ok()));
        Some(RunFollower { owner, process, silent_secs })
    }

    /// Whether it counts: it was active recently, and is not a dead process of this laptop.
    pub(crate) fn is_present(&self, laptop_id: &str, is_process_alive: fn(u32) -> bool) -> bool {
        let is_dead = self.process.as_ref().is_some_and(|(laptop, pid)| laptop == laptop_id && !is_process_alive(*pid));
        self.silent_secs <= MAX_SILENT_SECS && !is_dead
    }
}

fn is_name_byte(c: char) -> bool {
    c.is_ascii_alphanumeric() || "._@-".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn followers_are_parsed_strictly() {
        let owner = |text: &str| RunFollower::parse(text).map(|follower| (follower.owner, follower.silent_secs));
        assert_eq!(owner("4 li@laptop"), Some(("li@laptop".to_owned(), 4)));
        assert_eq!(owner("31 li@lap$(id) l 7"), Some(("somebody".to_owned(), 31)));
        assert_eq!(owner("0"), Some(("somebody".to_owned(), 0)));
        assert_eq!(owner("-3 li@laptop"), None);
        assert_eq!(RunFollower::format("li x@my laptop\n", "ab12", 7), "li_x@my_laptop_ ab12 7");
    }

    #[test]
    fn silent_and_dead_followers_do_not_count() {
        let is_present = |text: &str, alive: fn(u32) -> bool| RunFollower::parse(text).expect("one").is_present("mine", alive);
        assert!(is_present("30 a@b mine 7", |_| true) && !is_present("31 a@b mine 7", |_| true));
        assert!(!is_present("1 a@b mine 7", |_| false), "a killed process of this laptop");
        assert!(is_present("1 a@b other 7", |_| false) && is_present("1", |_| false), "another laptop's process cannot be seen");
    }
}
