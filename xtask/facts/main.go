// Prints what the embedded API server must know of every Kubernetes type that it serves: the names and shapes of its
// fields, which of them are always written, how lists and maps merge, fixed defaults and allowed values. No prose.
//
// Each type is a line with its OpenAPI name and its Go name; each field is an indented line:
//
//	json-name <tab> type <tab> mark <tab> mark …
//
// `cargo xtask facts` runs this and writes crates/embedded/apiserver/data/types.txt.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/controlplane"
	"k8s.io/kubernetes/pkg/generated/openapi"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/install"
)

// What a 1.36 server serves unless told otherwise.
var served = []schema.GroupVersion{
	{Group: "", Version: "v1"},
	{Group: "admissionregistration.k8s.io", Version: "v1"},
	{Group: "apiextensions.k8s.io", Version: "v1"},
	{Group: "apiregistration.k8s.io", Version: "v1"},
	{Group: "apps", Version: "v1"},
	{Group: "authentication.k8s.io", Version: "v1"},
	{Group: "authorization.k8s.io", Version: "v1"},
	{Group: "autoscaling", Version: "v1"},
	{Group: "autoscaling", Version: "v2"},
	{Group: "batch", Version: "v1"},
	{Group: "certificates.k8s.io", Version: "v1"},
	{Group: "coordination.k8s.io", Version: "v1"},
	{Group: "discovery.k8s.io", Version: "v1"},
	{Group: "events.k8s.io", Version: "v1"},
	{Group: "flowcontrol.apiserver.k8s.io", Version: "v1"},
	{Group: "networking.k8s.io", Version: "v1"},
	{Group: "node.k8s.io", Version: "v1"},
	{Group: "policy", Version: "v1"},
	{Group: "rbac.authorization.k8s.io", Version: "v1"},
	{Group: "resource.k8s.io", Version: "v1"},
	{Group: "scheduling.k8s.io", Version: "v1"},
	{Group: "storage.k8s.io", Version: "v1"},
}

// Types with an encoding of their own, by Go name: what they are on the wire.
var scalars = map[string]string{
	"k8s.io/apimachinery/pkg/api/resource.Quantity":                                         "quantity",
	"k8s.io/apimachinery/pkg/apis/meta/v1.Time":                                             "time",
	"k8s.io/apimachinery/pkg/apis/meta/v1.MicroTime":                                        "microtime",
	"k8s.io/apimachinery/pkg/apis/meta/v1.Duration":                                         "duration",
	"k8s.io/apimachinery/pkg/apis/meta/v1.FieldsV1":                                         "any",
	"k8s.io/apimachinery/pkg/runtime.RawExtension":                                          "any",
	"k8s.io/apimachinery/pkg/util/intstr.IntOrString":                                       "intorstring",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSON":                         "any",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrBool":        "any",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrArray":       "any",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrStringArray": "any",
}

type dumper struct {
	definitions map[string]common.OpenAPIDefinition
	queue       []reflect.Type
	seen        map[reflect.Type]bool
	out         *bufio.Writer
}

func main() {
	apiextensions.Install(legacyscheme.Scheme)
	apiregistration.Install(legacyscheme.Scheme)
	d := &dumper{
		definitions: openapi.GetOpenAPIDefinitions(func(path string) spec.Ref { return spec.MustCreateRef(path) }),
		seen:        map[reflect.Type]bool{},
		out:         bufio.NewWriter(os.Stdout),
	}
	kinds := map[string][]schema.GroupVersionKind{}
	for _, gv := range served {
		for kind, t := range legacyscheme.Scheme.KnownTypes(gv) {
			kinds[modelName(t)] = append(kinds[modelName(t)], gv.WithKind(kind))
			d.enqueue(t)
		}
	}
	for _, v := range []any{metav1.Table{}, metav1.PartialObjectMetadata{}, metav1.PartialObjectMetadataList{}, metav1.APIGroupList{}, metav1.APIResourceList{}, metav1.APIVersions{}, metav1.Status{}} {
		d.enqueue(reflect.TypeOf(v))
	}
	blocks := map[string]string{}
	for len(d.queue) > 0 {
		t := d.queue[0]
		d.queue = d.queue[1:]
		blocks[modelName(t)] = d.block(t)
	}
	names := make([]string, 0, len(blocks))
	for name := range blocks {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Fprint(d.out, blocks[name])
	}
	d.out.Flush()
}

func (d *dumper) enqueue(t reflect.Type) {
	if !d.seen[t] {
		d.seen[t] = true
		d.queue = append(d.queue, t)
	}
}

func modelName(t reflect.Type) string {
	if named, ok := reflect.New(t).Elem().Interface().(interface{ OpenAPIModelName() string }); ok {
		return named.OpenAPIModelName()
	}
	path := strings.Split(t.PkgPath(), "/")
	domain := strings.Split(path[0], ".")
	for i, j := 0, len(domain)-1; i < j; i, j = i+1, j-1 {
		domain[i], domain[j] = domain[j], domain[i]
	}
	return strings.Join(append(domain, path[1:]...), ".") + "." + t.Name()
}

func (d *dumper) definition(t reflect.Type) *spec.Schema {
	if found, ok := d.definitions[modelName(t)]; ok {
		return &found.Schema
	}
	if found, ok := d.definitions[t.PkgPath()+"."+t.Name()]; ok {
		return &found.Schema
	}
	return nil
}

func (d *dumper) block(t reflect.Type) string {
	definition := d.definition(t)
	var text strings.Builder
	fmt.Fprintf(&text, "%s\t%s", modelName(t), t.String())
	if definition != nil {
		if mapType, ok := definition.Extensions.GetString("x-kubernetes-map-type"); ok {
			fmt.Fprintf(&text, "\tmap=%s", mapType)
		}
		if unions, ok := definition.Extensions["x-kubernetes-unions"]; ok {
			encoded, _ := json.Marshal(unions)
			fmt.Fprintf(&text, "\tunions=%s", encoded)
		}
	}
	text.WriteString("\n")
	d.fields(&text, t, definition, "")
	return text.String()
}

// The number of a field in protobuf messages; empty for those that are not in them.
func number(field reflect.StructField) string {
	parts := strings.Split(field.Tag.Get("protobuf"), ",")
	if len(parts) < 2 {
		return ""
	}
	return parts[1]
}

// `outer` is the number of the message that an inlined struct is in, with a dot.
func (d *dumper) fields(text *strings.Builder, t reflect.Type, definition *spec.Schema, outer string) {
	for i := 0; i < t.NumField(); i++ {
		field := t.Field(i)
		tag, tagged := field.Tag.Lookup("json")
		parts := strings.Split(tag, ",")
		if field.Anonymous && (!tagged || parts[0] == "") {
			inner := field.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			// What is inlined without a number (kind and version) is not in messages at all.
			within := "-"
			if n := number(field); n != "" && outer != "-" {
				within = outer + n + "."
			}
			d.fields(text, inner, definition, within)
			continue
		}
		if !tagged || parts[0] == "-" || parts[0] == "" {
			continue
		}
		name := parts[0]
		marks := []string{}
		if n := number(field); n != "" && outer != "-" {
			marks = append(marks, "number="+outer+n)
		}
		omit := ""
		for _, option := range parts[1:] {
			if option == "omitempty" || option == "omitzero" {
				omit = option
			}
		}
		if omit != "" {
			marks = append(marks, omit)
		}
		if field.Type.Kind() == reflect.Pointer {
			marks = append(marks, "pointer")
		}
		if strategy := field.Tag.Get("patchStrategy"); strategy != "" {
			marks = append(marks, "strategy="+strings.ReplaceAll(strategy, ",", "+"))
		}
		if key := field.Tag.Get("patchMergeKey"); key != "" {
			marks = append(marks, "key="+key)
		}
		if definition != nil {
			for _, required := range definition.Required {
				if required == name {
					marks = append(marks, "required")
				}
			}
			if property, ok := definition.Properties[name]; ok {
				marks = append(marks, propertyMarks(&property)...)
			} else {
				marks = append(marks, "hidden")
			}
		}
		fmt.Fprintf(text, "\t%s\t%s\t%s\n", name, d.typeName(field.Type), strings.Join(marks, "\t"))
	}
}

func propertyMarks(property *spec.Schema) []string {
	marks := []string{}
	extension := func(key string) string {
		value, _ := property.Extensions.GetString(key)
		return value
	}
	if listType := extension("x-kubernetes-list-type"); listType != "" {
		marks = append(marks, "list="+listType)
	}
	if keys, ok := property.Extensions.GetStringSlice("x-kubernetes-list-map-keys"); ok {
		marks = append(marks, "keys="+strings.Join(keys, "+"))
	}
	if mapType := extension("x-kubernetes-map-type"); mapType != "" {
		marks = append(marks, "map="+mapType)
	}
	if property.Default != nil {
		encoded, _ := json.Marshal(property.Default)
		marks = append(marks, "default="+string(encoded))
	}
	if property.Format != "" {
		marks = append(marks, "format="+property.Format)
	}
	enum := property.Enum
	if property.Items != nil && property.Items.Schema != nil && len(property.Items.Schema.Enum) > 0 {
		enum = property.Items.Schema.Enum
	}
	if property.AdditionalProperties != nil && property.AdditionalProperties.Schema != nil && len(property.AdditionalProperties.Schema.Enum) > 0 {
		enum = property.AdditionalProperties.Schema.Enum
	}
	if len(enum) > 0 {
		values := []string{}
		for _, value := range enum {
			values = append(values, fmt.Sprint(value))
		}
		marks = append(marks, "enum="+strings.Join(values, "|"))
	}
	for _, bound := range []struct {
		name  string
		value *float64
	}{{"minimum", property.Minimum}, {"maximum", property.Maximum}} {
		if bound.value != nil {
			marks = append(marks, fmt.Sprintf("%s=%v", bound.name, *bound.value))
		}
	}
	return marks
}

func (d *dumper) typeName(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		return d.typeName(t.Elem())
	}
	if scalar, ok := scalars[t.PkgPath()+"."+t.Name()]; ok {
		return scalar
	}
	switch t.Kind() {
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		return "[]" + goNamed(t, d.typeName(t.Elem()))
	case reflect.Map:
		return "map:" + goNamed(t, d.typeName(t.Elem()))
	case reflect.Struct:
		d.enqueue(t)
		return modelName(t)
	case reflect.Interface:
		return "any"
	case reflect.String, reflect.Bool, reflect.Int32, reflect.Int64, reflect.Float64, reflect.Int, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		// A named string is called by its name in the decoder's complaints.
		if t.PkgPath() != "" {
			return t.Kind().String() + "(" + t.String() + ")"
		}
		return t.Kind().String()
	}
	panic(fmt.Sprintf("a type that no API object should have: %v", t))
}

// A slice or map type with a name of its own (v1.ResourceList) is called by it in the decoder's complaints.
func goNamed(t reflect.Type, element string) string {
	if t.PkgPath() != "" {
		return "(" + t.String() + ")" + element
	}
	return element
}

var _ runtime.Object = &metav1.Status{}
