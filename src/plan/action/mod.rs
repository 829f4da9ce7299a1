//! What can be done to a host: one verb a file, with how to see whether it is needed, the command, the judgement and the way back.
//!
//! Uses `shell` and facts. All pure: the engine carries commands out and hands the answers back.

pub mod container;
pub mod launch;
pub mod lock;
pub mod memlock;
pub mod preflight;
pub mod prepare;
pub mod prove;
pub mod pull;
pub mod remove;
pub mod verdict;

pub use self::verdict::{Do, LOCK_LOST, Seen, Trouble, Verdict};
use crate::plan::facts::HostFacts;
use crate::shell::Output;

/// One thing to do on one host.
#[derive(Debug, Clone)]
pub enum Action {
    /// Judges the facts.
    Check(preflight::Check),
    /// Tries the way to the master's port.
    Reach(preflight::Reach),
    /// Gets the image.
    Pull(pull::Pull),
    /// Writes the run directory.
    Prepare(Box<prepare::Prepare>),
    /// Starts the container, or a bare host's keeper.
    Container(container::Container),
    /// Looks from inside.
    Prove(prove::Prove),
    /// Starts the launcher.
    Launch(launch::Launch),
    /// Waits for the master's port.
    Gate(launch::Gate),
    /// Ends the ranks.
    Stop(launch::Stop),
    /// Removes the container or ends the keeper.
    Remove(remove::Remove),
    /// Fetches what the laptop lacks of the logs.
    Fetch(remove::Fetch),
    /// Removes the run directory.
    Clean(remove::Clean),
    /// Looks whether anything is left.
    Verify(remove::Verify),
}

impl Action {
    /// What it does, for people.
    pub fn title(&self) -> &'static str {
        match self {
            Action::Check(_) => "check",
            Action::Reach(_) => "reach the master",
            Action::Pull(a) => a.title(),
            Action::Prepare(_) => "write the run directory",
            Action::Container(c) => c.title(),
            Action::Prove(_) => "look from inside",
            Action::Launch(_) => "start the launcher",
            Action::Gate(_) => "wait for the master's port",
            Action::Stop(_) => "stop the ranks",
            Action::Remove(r) => r.title(),
            Action::Fetch(_) => "fetch the logs",
            Action::Clean(_) => "remove the run directory",
            Action::Verify(_) => "verify that nothing is left",
        }
    }

    /// Whether it may be broken off at any moment: it leaves nothing behind that a teardown would have to know of.
    pub fn only_looks(&self) -> bool {
        match self {
            Action::Check(_)
            | Action::Reach(_)
            | Action::Pull(_)
            | Action::Prove(_)
            | Action::Gate(_)
            | Action::Fetch(_)
            | Action::Verify(_) => true,
            Action::Prepare(_) | Action::Container(_) | Action::Launch(_) | Action::Stop(_) | Action::Remove(_) | Action::Clean(_) => false,
        }
    }

    /// Whether it may leave something on the host when it fails or is broken off: what changes a host, and a login at a registry.
    pub fn may_leave(&self) -> bool {
        match self {
            Action::Pull(pull) => pull.login.is_some(),
            other => !other.only_looks(),
        }
    }

    /// Whether there is anything to do on a host with these facts.
    pub fn observe(&self, facts: &HostFacts) -> Seen {
        match self {
            Action::Check(a) => a.observe(facts),
            Action::Reach(_) => Seen::Needed(String::new()),
            Action::Pull(a) => a.observe(facts),
            Action::Container(a) => a.observe(facts),
            Action::Remove(a) => a.observe(facts),
            Action::Prepare(_) | Action::Prove(_) | Action::Launch(_) | Action::Gate(_) | Action::Stop(_) => Seen::Needed(String::new()),
            Action::Fetch(_) | Action::Clean(_) | Action::Verify(_) => Seen::Needed(String::new()),
        }
    }

    /// How it is carried out.
    pub fn command(&self) -> Do {
        match self {
            Action::Check(_) => Do::Nothing,
            Action::Reach(a) => a.command(),
            Action::Pull(a) => Do::Script(a.command()),
            Action::Prepare(a) => Do::Script(a.command()),
            Action::Container(a) => Do::Script(a.command()),
            Action::Prove(a) => Do::Script(a.command()),
            Action::Launch(a) => Do::Script(a.command()),
            Action::Gate(a) => Do::Script(a.command()),
            Action::Stop(a) => Do::Script(a.command()),
            Action::Remove(a) => Do::Script(a.command()),
            Action::Fetch(a) => Do::Fetch { run: a.run.clone() },
            Action::Clean(a) => Do::Script(a.command()),
            Action::Verify(a) => Do::Script(a.command()),
        }
    }

    /// What the answer means.
    pub fn judge(&self, output: &Output) -> Verdict {
        if output.code == LOCK_LOST {
            return Verdict::LockLost;
        }
        match self {
            Action::Check(_) | Action::Reach(_) | Action::Fetch(_) => Verdict::fine(""),
            Action::Pull(a) => a.judge(output),
            Action::Prepare(a) => a.judge(output),
            Action::Container(a) => a.judge(output),
            Action::Prove(a) => a.judge(output),
            Action::Launch(a) => a.judge(output),
            Action::Gate(a) => a.judge(output),
            Action::Stop(a) => a.judge(output),
            Action::Remove(a) => a.judge(output),
            Action::Clean(a) => a.judge(output),
            Action::Verify(a) => a.judge(output),
        }
    }
}
