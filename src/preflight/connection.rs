//! What came of the connections that the checks try between hosts.

use std::fmt::{Display, Formatter};
use std::str::FromStr;

use crate::model::tcp_reachability::{PathState, TcpReachability};

/// Where a connection leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionTarget {
    /// The port of the rendezvous, on the master.
    MasterPort,
    /// A port of the kernel's choice, on the host with this index.
    EphemeralPort(usize),
}

impl Display for ConnectionTarget {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            ConnectionTarget::MasterPort => f.write_str("given>0"),
            ConnectionTarget::EphemeralPort(host) => write!(f, "ephemeral>{host}"),
        }
    }
}

impl FromStr for ConnectionTarget {
    type Err = ();

    fn from_str(text: &str) -> Result<ConnectionTarget, ()> {
        match text.split_once('>').ok_or(())? {
            ("given", "0") => Ok(ConnectionTarget::MasterPort),
            ("ephemeral", host) => host.parse().map(ConnectionTarget::EphemeralPort).map_err(|_| ()),
            _ => Err(()),
        }
    }
}

/// A try to connect, by the host whose answer it is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConnectionAttempt {
    pub target: ConnectionTarget,
    /// Whether a listener of ours was there.
    pub has_listener: bool,
    /// What came of it.
    pub found: TcpReachability,
}

impl ConnectionAttempt {
    /// Reads what `assets/check/reach.sh` answers: `LABEL/LISTENS RESULT WHY`.
    pub(super) fn parse(text: &str) -> Option<ConnectionAttempt> {
        let (target, rest) = text.split_once(['/', ' '])?;
        let mut words = rest.splitn(3, ' ');
        let (listens, result, why) = (words.next()?, words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let found = match result {
            "open" => TcpReachability::Open,
            "refused" => TcpReachability::Refused,
            "blocked" => TcpReachability::Blocked(why.to_owned()),
            _ => TcpReachability::Unknown(why.to_owned()),
        };
        Some(ConnectionAttempt { target: target.parse().ok()?, has_listener: listens == "yes", found })
    }

    /// The word by which `assets/check/reach.sh` names it.
    pub(crate) fn label(target: ConnectionTarget, has_listener: bool) -> String {
        format!("{target}/{}", if has_listener { "yes" } else { "no" })
    }

    /// What the attempt shows about the path.
    pub(crate) fn path_state(&self) -> PathState<'_> {
        self.found.path_state(self.has_listener)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_answer_is_read_by_its_label() {
        let label = ConnectionAttempt::label(ConnectionTarget::EphemeralPort(3), true);
        let read = |rest: &str| ConnectionAttempt::parse(&format!("{label}{rest}")).map(|attempt| attempt.found);
        assert_eq!(read(" open"), Some(TcpReachability::Open));
        assert_eq!(read(" blocked no answer within 3 s"), Some(TcpReachability::Blocked("no answer within 3 s".to_owned())));
        assert_eq!(read(" untold no nc"), Some(TcpReachability::Unknown("no nc".to_owned())));
        assert_eq!(read(""), Some(TcpReachability::Unknown(String::new())));
        for wrong in ["", "given>0", "given>1/yes open", "ephemeral>x/yes open"] {
            assert_eq!(ConnectionAttempt::parse(wrong), None, "{wrong}");
        }
        let refused = ConnectionAttempt::parse("given>0/no refused").expect("an attempt");
        assert_eq!((refused.target, refused.path_state()), (ConnectionTarget::MasterPort, PathState::Open));
    }
}
