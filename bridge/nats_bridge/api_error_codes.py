"""Decides whether a rule may retry after an error of the JetStream API, from one table of all error codes.

The codes are those of `server/errors.json` in nats-server 2.9.10 to 2.15.3; `tests/data/api_error_codes.json` records
them. A code means the same in all these versions.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, cast

ApiErrorClass: TypeAlias = Literal["passing", "fatal", "misconfiguration"]
"""The reaction to a code.

`passing`: the state of servers, such as an offline node, an election or a full store. The rule waits and tries again.
`fatal`: a stream, consumer or message is not the one that the rule expected. The rule's run ends.
`misconfiguration`: only another rule, stream, limit or message helps. The rule's run ends.
"""

_TABLE = """
    10002 passing          AccountResourcesExceeded
    10003 misconfiguration BadRequest
    10004 passing          ClusterIncomplete
    10005 passing          ClusterNoPeers
    10006 passing          ClusterNotActive
    10007 passing          ClusterNotAssigned
    10008 passing          ClusterNotAvail
    10009 passing          ClusterNotLeader
    10010 passing          ClusterRequired
    10011 misconfiguration ClusterTags
    10012 passing          ConsumerCreate
    10013 fatal            ConsumerNameExist
    10014 fatal            ConsumerNotFound
    10015 misconfiguration SnapshotDeliverSubjectInvalid
    10016 misconfiguration ConsumerDurableNameNotInSubject
    10017 misconfiguration ConsumerDurableNameNotMatchSubject
    10018 misconfiguration ConsumerDurableNameNotSet
    10019 misconfiguration ConsumerEphemeralWithDurableInSubject
    10020 misconfiguration ConsumerEphemeralWithDurableName
    10021 misconfiguration StreamExternalApiOverlap
    10022 misconfiguration StreamExternalDelPrefixOverlaps
    10023 passing          InsufficientResources
    10024 misconfiguration StreamInvalidExternalDeliverySubj
    10025 misconfiguration InvalidJSON
    10026 passing          MaximumConsumersLimit
    10027 passing          MaximumStreamsLimit
    10028 passing          MemoryResourcesExceeded
    10029 passing          MirrorConsumerSetupFailed
    10030 misconfiguration MirrorMaxMessageSizeTooBig
    10031 misconfiguration MirrorWithSources
    10032 misconfiguration MirrorWithStartSeqAndTime
    10033 misconfiguration MirrorWithSubjectFilters
    10034 misconfiguration MirrorWithSubjects
    10035 passing          NoAccount
    10036 misconfiguration ClusterUnSupportFeature
    10037 fatal            NoMessageFound
    10038 misconfiguration NotEmptyRequest
    10039 passing          NotEnabledForAccount
    10040 misconfiguration ClusterPeerNotMember
    10041 passing          RaftGeneral
    10042 passing          RestoreSubscribeFailed
    10043 fatal            SequenceNotFound
    10044 misconfiguration ClusterServerNotMember
    10045 passing          SourceConsumerSetupFailed
    10046 misconfiguration SourceMaxMessageSizeTooBig
    10047 passing          StorageResourcesExceeded
    10048 passing          StreamAssignment
    10049 passing          StreamCreate
    10050 passing          StreamDelete
    10051 passing          StreamGeneralError
    10052 misconfiguration StreamInvalidConfig
    10053 misconfiguration StreamLimits
    10054 misconfiguration StreamMessageExceedsMaximum
    10055 misconfiguration StreamMirrorNotUpdatable
    10056 misconfiguration StreamMismatch
    10057 passing          StreamMsgDeleteFailed
    10058 misconfiguration StreamNameExist
    10059 fatal            StreamNotFound
    10060 fatal            StreamNotMatch
    10061 misconfiguration StreamReplicasNotUpdatable
    10062 fatal            StreamRestore
    10063 passing          StreamSequenceNotMatch
    10064 passing          StreamSnapshot
    10065 misconfiguration StreamSubjectOverlap
    10066 passing          StreamTemplateCreate
    10067 passing          StreamTemplateDelete
    10068 fatal            StreamTemplateNotFound
    10069 passing          StreamUpdate
    10070 fatal            StreamWrongLastMsgID
    10071 fatal            StreamWrongLastSequence
    10072 passing          TempStorageFailed
    10073 misconfiguration TemplateNameNotMatchSubject
    10074 misconfiguration StreamReplicasNotSupported
    10075 passing          PeerRemap
    10076 passing          NotEnabled
    10077 passing          StreamStoreFailed
    10078 misconfiguration ConsumerConfigRequired
    10079 misconfiguration ConsumerDeliverToWildcards
    10080 misconfiguration ConsumerPushMaxWaiting
    10081 misconfiguration ConsumerDeliverCycle
    10082 misconfiguration ConsumerMaxPendingAckPolicyRequired
    10083 misconfiguration ConsumerSmallHeartbeat
    10084 misconfiguration ConsumerPullRequiresAck
    10085 misconfiguration ConsumerPullNotDurable
    10086 misconfiguration ConsumerPullWithRateLimit
    10087 misconfiguration ConsumerMaxWaitingNegative
    10088 misconfiguration ConsumerHBRequiresPush
    10089 misconfiguration ConsumerFCRequiresPush
    10090 misconfiguration ConsumerDirectRequiresPush
    10091 misconfiguration ConsumerDirectRequiresEphemeral
    10092 misconfiguration ConsumerOnMapped
    10093 misconfiguration ConsumerFilterNotSubset
    10094 misconfiguration ConsumerInvalidPolicy
    10095 misconfiguration ConsumerInvalidSampling
    10096 passing          StreamInvalid
    10097 misconfiguration StreamHeaderExceedsMaximum
    10098 misconfiguration ConsumerWQRequiresExplicitAck
    10099 misconfiguration ConsumerWQMultipleUnfiltered
    10100 misconfiguration ConsumerWQConsumerNotUnique
    10101 misconfiguration ConsumerWQConsumerNotDeliverAll
    10102 misconfiguration ConsumerNameTooLong
    10103 misconfiguration ConsumerBadDurableName
    10104 passing          ConsumerStoreFailed
    10105 fatal            ConsumerExistingActive
    10106 misconfiguration ConsumerReplacementWithDifferentName
    10107 misconfiguration ConsumerDescriptionTooLong
    10108 misconfiguration ConsumerWithFlowControlNeedsHeartbeats
    10109 fatal            StreamSealed
    10110 passing          StreamPurgeFailed
    10111 misconfiguration StreamRollupFailed
    10112 misconfiguration ConsumerInvalidDeliverSubject
    10113 misconfiguration StreamMaxBytesRequired
    10114 misconfiguration ConsumerMaxRequestBatchNegative
    10115 misconfiguration ConsumerMaxRequestExpiresTooSmall
    10116 misconfiguration ConsumerMaxDeliverBackoff
    10117 misconfiguration StreamInfoMaxSubjects
    10118 passing          StreamOffline
    10119 passing          ConsumerOffline
    10120 misconfiguration NoLimits
    10121 misconfiguration ConsumerMaxPendingAckExcess
    10122 misconfiguration StreamMaxStreamBytesExceeded
    10123 misconfiguration StreamMoveAndScale
    10124 passing          StreamMoveInProgress
    10125 misconfiguration ConsumerMaxRequestBatchExceeded
    10126 misconfiguration ConsumerReplicasExceedsStream
    10127 misconfiguration ConsumerNameContainsPathSeparators
    10128 misconfiguration StreamNameContainsPathSeparators
    10129 fatal            StreamReconfigureNotInProgress
    10130 misconfiguration StreamNameExistRestoreFailed
    10131 misconfiguration ConsumerCreateFilterSubjectMismatch
    10132 misconfiguration ConsumerCreateDurableAndNameMismatch
    10133 misconfiguration ReplicasCountCannotBeNegative
    10134 misconfiguration ConsumerReplicasShouldMatchStream
    10135 misconfiguration ConsumerMetadataLength
    10136 misconfiguration ConsumerDuplicateFilterSubjects
    10137 misconfiguration ConsumerMultipleFiltersNotAllowed
    10138 misconfiguration ConsumerOverlappingSubjectFilters
    10139 misconfiguration ConsumerEmptyFilter
    10140 misconfiguration SourceDuplicateDetected
    10141 misconfiguration SourceInvalidStreamName
    10142 misconfiguration MirrorInvalidStreamName
    10143 misconfiguration MirrorWithFirstSeq
    10144 misconfiguration SourceMultipleFiltersNotAllowed
    10145 misconfiguration SourceInvalidSubjectFilter
    10146 misconfiguration SourceInvalidTransformDestination
    10147 misconfiguration SourceOverlappingSubjectFilters
    10148 fatal            ConsumerAlreadyExists
    10149 fatal            ConsumerDoesNotExist
    10150 misconfiguration MirrorMultipleFiltersNotAllowed
    10151 misconfiguration MirrorInvalidSubjectFilter
    10152 misconfiguration MirrorOverlappingSubjectFilters
    10153 misconfiguration ConsumerInactiveThresholdExcess
    10154 misconfiguration MirrorInvalidTransformDestination
    10155 misconfiguration StreamTransformInvalidSource
    10156 misconfiguration StreamTransformInvalidDestination
    10157 misconfiguration Pedantic
    10158 passing          StreamDuplicateMessageConflict
    10159 misconfiguration ConsumerPriorityPolicyWithoutGroup
    10160 misconfiguration ConsumerInvalidPriorityGroup
    10161 misconfiguration ConsumerEmptyGroupName
    10162 misconfiguration ConsumerInvalidGroupName
    10163 passing          StreamExpectedLastSeqPerSubjectNotReady
    10164 fatal            StreamWrongLastSequenceConstant
    10165 misconfiguration MessageTTLInvalid
    10166 misconfiguration MessageTTLDisabled
    10167 passing          StreamTooManyRequests
    10168 misconfiguration MessageIncrDisabled
    10169 misconfiguration MessageIncrMissing
    10170 misconfiguration MessageIncrPayload
    10171 misconfiguration MessageIncrInvalid
    10172 misconfiguration MessageCounterBroken
    10173 misconfiguration MirrorWithCounters
    10174 misconfiguration AtomicPublishDisabled
    10175 misconfiguration AtomicPublishMissingSeq
    10176 fatal            AtomicPublishIncompleteBatch
    10177 misconfiguration AtomicPublishUnsupportedHeaderBatch
    10178 misconfiguration ConsumerPushWithPriorityGroup
    10179 misconfiguration AtomicPublishInvalidBatchID
    10180 passing          StreamMinLastSeq
    10181 misconfiguration ConsumerAckPolicyInvalid
    10182 misconfiguration ConsumerReplayPolicyInvalid
    10183 misconfiguration ConsumerAckWaitNegative
    10184 misconfiguration ConsumerBackOffNegative
    10185 misconfiguration RequiredApiLevel
    10186 misconfiguration MirrorWithMsgSchedules
    10187 misconfiguration SourceWithMsgSchedules
    10188 misconfiguration MessageSchedulesDisabled
    10189 misconfiguration MessageSchedulesPatternInvalid
    10190 misconfiguration MessageSchedulesTargetInvalid
    10191 misconfiguration MessageSchedulesTTLInvalid
    10192 misconfiguration MessageSchedulesRollupInvalid
    10193 misconfiguration StreamExpectedLastSeqPerSubjectInvalid
    10194 passing          StreamOfflineReason
    10195 passing          ConsumerOfflineReason
    10196 misconfiguration ConsumerPriorityGroupWithPolicyNone
    10197 misconfiguration ConsumerPinnedTTLWithoutPriorityPolicyNone
    10198 misconfiguration MirrorWithAtomicPublish
    10199 misconfiguration AtomicPublishTooLargeBatch
    10200 misconfiguration AtomicPublishInvalidBatchCommit
    10201 misconfiguration AtomicPublishContainsDuplicateMessage
    10202 passing          ClusterServerMemberChangeInflight
    10203 misconfiguration MessageSchedulesSourceInvalid
    10204 misconfiguration ConsumerInvalidReset
    10205 misconfiguration BatchPublishDisabled
    10206 misconfiguration BatchPublishInvalidPattern
    10207 misconfiguration BatchPublishInvalidBatchID
    10208 fatal            BatchPublishUnknownBatchID
    10209 misconfiguration MirrorWithBatchPublish
    10210 passing          AtomicPublishTooManyInflight
    10211 passing          BatchPublishTooManyInflight
    10212 misconfiguration MessageSchedulesSchedulerInvalid
    10213 misconfiguration MirrorDurableConsumerCfgInvalid
    10214 misconfiguration MirrorConsumerRequiresAckFC
    10215 misconfiguration SourceDurableConsumerCfgInvalid
    10216 misconfiguration SourceDurableConsumerDuplicateDetected
    10217 misconfiguration SourceConsumerRequiresAckFC
    10218 misconfiguration ConsumerAckFCRequiresPush
    10219 misconfiguration ConsumerAckFCRequiresFC
    10220 misconfiguration ConsumerAckFCRequiresMaxAckPending
    10221 misconfiguration ConsumerAckFCRequiresNoAckWait
    10222 misconfiguration ConsumerAckFCRequiresNoMaxDeliver
    10223 misconfiguration MessageSchedulesTimeZoneInvalid
    10224 fatal            ClusterRescue
    10225 fatal            ConsumerStreamIdentityMismatch
    10226 passing          StreamReconfigureInProgress
    10227 misconfiguration MessageSourceHdrNotAllowed
    10228 passing          SourceConsumerFlowControlStalled
"""
"""By code: its class, and the server's name for it without `JS` and `Err`.

Codes whose text is any error of the server (`{err}`) are passing, except where the server uses them for requests that
are wrong in themselves (10052, 10053, 10094, 10095, 10111).
"""

CLASSES: Final[Mapping[int, ApiErrorClass]] = {
    int(code): cast(ApiErrorClass, word) for code, word, _ in map(str.split, _TABLE.strip().splitlines())
}
"""The class of every known code."""


def class_of(err_code: int) -> ApiErrorClass:
    """Return the class of an `err_code`; `passing` for codes of newer servers, which the table lacks."""
    return CLASSES.get(err_code, "passing")
