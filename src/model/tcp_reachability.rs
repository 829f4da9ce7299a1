//! What a host found when it tried a TCP connection, and what that says of the path.

/// What a host found when it tried a TCP connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TcpReachability {
    Open,
    /// The other end refused it: nothing listens, and the path is open.
    Refused,
    /// It did not come about, and why: the path is closed.
    Blocked(String),
    /// Unknown, with the reason: sshd does not forward, or gives no reason.
    Unknown(String),
}

/// What a try says of the path between two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathState<'a> {
    Open,
    /// A firewall refuses connections to a port that listens.
    Rejected,
    /// A firewall drops them; why that is thought.
    Dropped(&'a str),
    /// Unknown, with the reason.
    Unknown(&'a str),
}

impl TcpReachability {
    /// What the try says; `has_listener`: whether the port is known to listen.
    pub fn path_state(&self, has_listener: bool) -> PathState<'_> {
        match self {
            TcpReachability::Refused if has_listener => PathState::Rejected,
            TcpReachability::Open | TcpReachability::Refused => PathState::Open,
            TcpReachability::Blocked(why) => PathState::Dropped(why),
            TcpReachability::Unknown(why) => PathState::Unknown(why),
        }
    }
}
