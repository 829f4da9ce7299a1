//! A jump host as ProxyJump and the inventory write it.
//!
//! Uses `port`.

use super::port::port;

/// A jump host as it is written: `[user@]host[:port]`, `[user@][v6]:port` or `ssh://…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::remote) struct Jump {
    pub(in crate::remote) user: Option<String>,
    pub(in crate::remote) host: String,
    pub(in crate::remote) port: Option<u16>,
}

impl Jump {
    /// Reads one jump host; an error is a fragment.
    pub(in crate::remote) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a jump host ([user@]host[:port])");
        let bare = text.trim();
        let bare = bare.strip_prefix("ssh://").map_or(bare, |b| b.trim_end_matches('/'));
        let (user, place) = bare.rsplit_once('@').map_or((None, bare), |(user, place)| (Some(user.to_owned()), place));
        let (host, given) = match place.strip_prefix('[').and_then(|p| p.split_once(']')) {
            Some((host, rest)) => (host, rest.strip_prefix(':')),
            None => match place.rsplit_once(':') {
                Some((host, port)) if !host.contains(':') => (host, Some(port)),
                _ => (place, None),
            },
        };
        let port = given.map(|p| port(p).ok_or_else(wrong)).transpose()?;
        if host.is_empty() || host.starts_with('-') || user.as_deref() == Some("") {
            return Err(wrong());
        }
        Ok(Jump { user, host: host.to_owned(), port })
    }

    /// Reads the value of `ProxyJump`.
    pub(in crate::remote) fn list(text: &str) -> Result<Vec<Self>, String> {
        text.split(',').map(Jump::parse).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jump_hosts_are_read_in_every_form() {
        let jump = |user: Option<&str>, host: &str, port| Jump { user: user.map(str::to_owned), host: host.to_owned(), port };
        assert_eq!(Jump::list("u@b1:33,b2"), Ok(vec![jump(Some("u"), "b1", Some(33)), jump(None, "b2", None)]));
        assert_eq!(Jump::parse("ssh://me@b9:99/"), Ok(jump(Some("me"), "b9", Some(99))));
        assert_eq!(Jump::parse("[fd00::1]:22"), Ok(jump(None, "fd00::1", Some(22))));
        assert_eq!(Jump::parse("fd00::1"), Ok(jump(None, "fd00::1", None)));
        assert!(Jump::parse("b:0").is_err() && Jump::parse("@b").is_err() && Jump::parse("").is_err() && Jump::parse("-oX").is_err());
    }
}
