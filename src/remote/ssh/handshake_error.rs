//! Why a connection could not be opened, in words, and whether to retry.

use super::algorithm_preferences;
use super::client_handler::{DisconnectInfo, HandshakeError, describe_error};
use super::transport::Greeting;
use crate::remote::RemoteError;
use crate::remote::hop::Hop;

/// Why a connection failed.
#[derive(Debug)]
pub(super) enum ConnectError {
    /// Reset or closed before key exchange: sshd may have been busy.
    Busy(RemoteError),
    /// The connection ended during a prompt: the answer is known now.
    LostDuringPrompt(RemoteError),
    Final(RemoteError),
}

pub(super) fn handshake_timeout_error(hop: &Hop, place: &str, greeting: &Greeting) -> RemoteError {
    if let Some(error) = ssh1_error(hop, place, greeting) {
        return error;
    }
    let within = hop.connect_timeout;
    let why = match (greeting.first_line(), greeting.non_ssh_line()) {
        (None, _) => format!("no SSH greeting came within {within:?}"),
        (Some(_), None) => format!("it did not finish the key exchange within {within:?}"),
        (_, Some(line)) => format!("it sent “{line}” but no SSH greeting within {within:?}"),
    };
    RemoteError::lost(
        hop.prefix_message(&format!("no SSH connection to {place}: {why}")),
        "check that what listens there is an sshd, and that the host is not overloaded",
        true,
    )
}

/// The error for a server without SSH 2. (1.99 supports both.)
fn ssh1_error(hop: &Hop, place: &str, greeting: &Greeting) -> Option<RemoteError> {
    let line = greeting.first_line().filter(|line| line.starts_with("SSH-1.") && !line.starts_with("SSH-1.99"))?;
    Some(RemoteError::lost(
        hop.prefix_message(&format!("could not connect to {place}: it supports only SSH 1 (“{line}”), which is insecure")),
        "the host needs an sshd that supports SSH 2",
        false,
    ))
}

/// Describes a failed handshake and decides whether to retry.
pub(super) fn handshake_failure(
    hop: &Hop,
    place: &str,
    error: HandshakeError,
    greeting: &Greeting,
    disconnect_info: &DisconnectInfo,
) -> ConnectError {
    let error = match error {
        HandshakeError::HostKey(error) => return ConnectError::Final(error),
        HandshakeError::Ssh(error) => error,
    };
    if let Some(error) = ssh1_error(hop, place, greeting) {
        return ConnectError::Final(error);
    }
    let fails = |why: String, hint: &str, retry| {
        RemoteError::lost(hop.prefix_message(&format!("could not connect to {place}: {why}")), hint, retry)
    };
    match &error {
        russh::Error::NoCommonAlgo { kind, theirs, .. } => ConnectError::Final(no_common_algorithm_error(hop, kind, theirs)),
        russh::Error::Version => {
            let line = greeting.first_line().map(|line| format!("; it sent “{line}”")).unwrap_or_default();
            let hint = format!("check that {} is the right port", hop.port);
            ConnectError::Final(fails(format!("the server on this port is not an SSH server{line}"), &hint, false))
        }
        russh::Error::HUP | russh::Error::Disconnect | russh::Error::IO(_) => {
            let why = match (disconnect_info.cause.get(), greeting.non_ssh_line(), greeting.first_line()) {
                (Some(cause), ..) => cause.to_string(),
                (_, Some(line), _) => format!("it sent “{line}” and closed the connection"),
                (.., Some(_)) => format!("{} during the key exchange", describe_error(&error)),
                (.., None) => format!("{} before sending anything", describe_error(&error)),
            };
            ConnectError::Busy(fails(
                why,
                "sshd may be busy (MaxStartups), or be refusing this address temporarily (PerSourcePenalties)",
                true,
            ))
        }
        _ => ConnectError::Final(fails(format!("{} during the key exchange", describe_error(&error)), "", true)),
    }
}

/// Names the missing common algorithm and the line of ssh_config that restricts it.
fn no_common_algorithm_error(hop: &Hop, kind: &russh::AlgorithmKind, theirs: &[String]) -> RemoteError {
    let Some(list) = algorithm_preferences::list_of_failed_negotiation(&hop.algorithms, kind) else {
        return RemoteError::refused(hop.prefix_message("no common compression"), "");
    };
    let left_out = list.unsupported_notice().map(|text| format!(" ({text})")).unwrap_or_default();
    let hint = match &list.origin {
        Some(place) => format!("allow one of them in {} ({place})", list.table.keyword),
        None => {
            format!(
                "the host's sshd is too old or restricted to insecure algorithms; `{} +…` in ssh_config allows more",
                list.table.keyword
            )
        }
    };
    let theirs: Vec<&str> = theirs.iter().map(String::as_str).filter(|name| !algorithm_preferences::is_kex_marker(name)).collect();
    let (noun, theirs, ours) = (list.table.noun, theirs.join(", "), list.names.join(", "));
    RemoteError::refused(hop.prefix_message(&format!("no common {noun}: the server offers {theirs}; we offer {ours}{left_out}")), hint)
}
