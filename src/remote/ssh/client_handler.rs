//! Callbacks of russh: verifies the host key from memory, records the reason of a disconnect, and rejects channels opened by the server.
//!
//! Runs inside russh's loop, so nothing here waits, except for a `KnownHostsCommand` that needs the key.

use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use russh::client::{ChannelOpenHandle, DisconnectReason, Handler, Msg, Session};
use russh::keys::ssh_key::certificate::CertType;
use russh::keys::{HashAlg, PublicKey, PublicKeyOrCertificate};
use russh::{Channel, ChannelId, ChannelOpenFailure};
use tokio::sync::{SetOnce, mpsc};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::remote::RemoteError;
use crate::remote::host_certificate::HostCertificate;
use crate::remote::host_key::{HostKeyDecision, HostKeyVerifier};
use crate::remote::presented_key::PresentedKey;
use crate::text::error_chain::plain_io_error;

/// Why a connection ended.
#[derive(Debug)]
pub(super) enum DisconnectCause {
    /// A refusal listed no further method.
    NoMethodLeft,
    /// The host's own message.
    HostSaid(String),
    Other(String),
}

impl std::fmt::Display for DisconnectCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DisconnectCause::NoMethodLeft => f.write_str("the server accepts no further method"),
            DisconnectCause::HostSaid(message) => write!(f, "the host said: {message}"),
            DisconnectCause::Other(text) => f.write_str(text),
        }
    }
}

/// Results of the loop for its owner.
#[derive(Debug, Default)]
pub(super) struct DisconnectInfo {
    /// Why the connection ended; the first cause counts.
    pub(super) cause: SetOnce<DisconnectCause>,
    /// A new key to store.
    pub(super) new_key: OnceLock<PresentedKey>,
}

/// Why a handshake failed.
#[derive(Debug)]
pub(super) enum HandshakeError {
    Ssh(russh::Error),
    HostKey(RemoteError),
}

impl From<russh::Error> for HandshakeError {
    fn from(error: russh::Error) -> Self {
        HandshakeError::Ssh(error)
    }
}

/// Handler of one connection.
pub(super) struct ClientHandler {
    verifier: Arc<HostKeyVerifier>,
    disconnect_info: Arc<DisconnectInfo>,
    open_failures: mpsc::Sender<String>,
    /// The key that was presented and accepted.
    accepted_key: Option<PresentedKey>,
    /// Cancels `closed` when russh's loop ends in any way.
    _closed_guard: DropGuard,
}

impl ClientHandler {
    pub(super) fn new(
        verifier: Arc<HostKeyVerifier>,
        disconnect_info: Arc<DisconnectInfo>,
        open_failures: mpsc::Sender<String>,
        closed: CancellationToken,
    ) -> Self {
        ClientHandler { verifier, disconnect_info, open_failures, accepted_key: None, _closed_guard: closed.drop_guard() }
    }

    /// Known keys of the host, with the output of `KnownHostsCommand` for this key.
    async fn verifier_for_key(&self, offered: &PresentedKey) -> Result<Arc<HostKeyVerifier>, HandshakeError> {
        let Some(command) = self.verifier.policy.known_hosts_command.as_ref().filter(|c| c.needs_presented_key()) else {
            return Ok(self.verifier.clone());
        };
        let printed = command.run(Some(offered)).await.map_err(HandshakeError::HostKey)?;
        let mut verifier = HostKeyVerifier::clone(&self.verifier);
        verifier.set_command_lines(&printed);
        Ok(Arc::new(verifier))
    }
}

/// Parses the presented key; russh has verified that the host owns it.
fn parse_presented_key(presented: &PublicKeyOrCertificate) -> Result<PresentedKey, HandshakeError> {
    let blob = |key: &PublicKey| key.to_bytes().map_err(|e| HandshakeError::Ssh(e.into()));
    let plain = presented.public_key();
    let certificate = match presented.certificate() {
        None => None,
        Some(certificate) => {
            let authority = PublicKey::from(certificate.signature_key().clone());
            let own = certificate.signature_key().fingerprint(HashAlg::Sha256);
            // The validity period is checked, so only the signature can be wrong.
            certificate.validate_at(certificate.valid_after(), [&own]).map_err(|e| HandshakeError::Ssh(e.into()))?;
            Some(HostCertificate {
                ca_key: blob(&authority)?,
                signature_algorithm: certificate.signature().algorithm().to_string(),
                serial: certificate.serial(),
                key_id: certificate.key_id().to_owned(),
                principals: certificate.valid_principals().to_vec(),
                valid_after: certificate.valid_after(),
                valid_before: certificate.valid_before(),
                is_host: certificate.cert_type() == CertType::Host,
                critical_options: certificate.critical_options().keys().cloned().collect(),
            })
        }
    };
    Ok(PresentedKey { key_type: plain.algorithm().to_string(), key: blob(&plain)?, certificate })
}

#[expect(clippy::disallowed_methods, reason = "a certificate is valid for a span of real time")]
fn unix_now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// A message of the host on one line, bounded.
fn sanitize_message(message: &str) -> String {
    let line: String = message.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect();
    line.trim().to_owned()
}

/// Describes a russh error for messages.
pub(super) fn describe_error(error: &russh::Error) -> String {
    match error {
        russh::Error::KeepaliveTimeout => "no answer to keepalives".to_owned(),
        russh::Error::InactivityTimeout => "nothing received, and nothing could be sent".to_owned(),
        russh::Error::HUP | russh::Error::Disconnect | russh::Error::SendError => "closed by the remote side".to_owned(),
        russh::Error::NoAuthMethod => DisconnectCause::NoMethodLeft.to_string(),
        russh::Error::IO(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => "closed by the remote side".to_owned(),
        russh::Error::IO(e) => plain_io_error(e),
        other => other.to_string(),
    }
}

impl Handler for ClientHandler {
    type Error = HandshakeError;

    async fn check_server_key(&mut self, presented: &PublicKeyOrCertificate) -> Result<bool, HandshakeError> {
        let offered = parse_presented_key(presented)?;
        // The host authenticates again in every rekey.
        if self.accepted_key.as_ref() == Some(&offered) {
            return Ok(true);
        }
        match self.verifier_for_key(&offered).await?.verify(&offered, unix_now()).map_err(HandshakeError::HostKey)? {
            HostKeyDecision::Accept => {}
            HostKeyDecision::AcceptAndRecord => {
                self.disconnect_info.new_key.get_or_init(|| offered.clone());
            }
        }
        self.accepted_key = Some(offered);
        Ok(true)
    }

    async fn disconnected(&mut self, reason: DisconnectReason<HandshakeError>) -> Result<(), HandshakeError> {
        let cause = match reason {
            DisconnectReason::ReceivedDisconnect(info) => DisconnectCause::HostSaid(sanitize_message(&info.message)),
            DisconnectReason::Error(HandshakeError::Ssh(russh::Error::NoAuthMethod)) => DisconnectCause::NoMethodLeft,
            DisconnectReason::Error(HandshakeError::Ssh(error)) => DisconnectCause::Other(describe_error(&error)),
            DisconnectReason::Error(HandshakeError::HostKey(error)) => DisconnectCause::Other(error.to_string()),
        };
        drop(self.disconnect_info.cause.set(cause));
        Ok(())
    }

    async fn channel_open_failure(
        &mut self,
        _: ChannelId,
        _: ChannelOpenFailure,
        description: &str,
        _: &str,
        _: &mut Session,
    ) -> Result<(), HandshakeError> {
        // A full queue means that nothing waits for reasons.
        self.open_failures.try_send(description.to_owned()).or(Ok(()))
    }

    // Channels that the server opens are refused: dropping the handle rejects them, russh's defaults would accept.
    async fn server_channel_open_forwarded_tcpip(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), HandshakeError> {
        Ok(())
    }

    async fn server_channel_open_forwarded_streamlocal(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), HandshakeError> {
        Ok(())
    }

    async fn server_channel_open_agent_forward(
        &mut self,
        _: Channel<Msg>,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), HandshakeError> {
        Ok(())
    }

    async fn server_channel_open_session(&mut self, _: Channel<Msg>, _: ChannelOpenHandle, _: &mut Session) -> Result<(), HandshakeError> {
        Ok(())
    }

    async fn server_channel_open_direct_tcpip(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), HandshakeError> {
        Ok(())
    }

    async fn server_channel_open_x11(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), HandshakeError> {
        Ok(())
    }

    async fn server_channel_open_direct_streamlocal(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), HandshakeError> {
        Ok(())
    }
}
