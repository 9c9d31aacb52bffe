// Package externalscaler is the interface of KEDA's external scalers, as Go code made of externalscaler.proto. To make it anew,
// with a protoc in the path (the one of PyPI's grpcio-tools will do: python3 -m grpc_tools.protoc in its place):
//
//	go generate ./program/internal/externalscaler
package externalscaler

//go:generate ./generate
